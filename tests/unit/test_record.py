"""The record of a materialization (O1): one typed value that round-trips and says what to do when it is missing."""

import dagster as dg
import pytest

from resources.record import RECORD_KEY, Record, RecordError

RECORD = Record(
    asset="deltas",
    partition="2026-03-02-14:00",
    generation=2,
    table_version=7,
    table_id="an-id",
    input_versions={"deltas": 6},
    input_generations={"deltas": 2},
    epochs={0: (1, 9), 3: (4, 5)},
    applied={0: 10, 3: 4},
    flushed={0: 9, 3: 4},
    durable={0: 8, 3: 4},
    watermark_us=1_772_445_600_000_000,
    held_by="shard 3, shop/signal",
    rows_in=5,
    rows_out=4,
    rows_late=1,
    rows_refused=1,
    bytes=2**40,
    duration_ms=12,
    definition="0f1e2d3c4b5a6978",
)


def test_a_record_round_trips_through_metadata() -> None:
    assert Record.from_metadata(RECORD.to_metadata()) == RECORD


def test_numbers_stand_above_the_record_on_an_assets_page() -> None:
    """The pages show metadata in the order in which it is stored."""
    instance = dg.DagsterInstance.ephemeral()
    instance.report_runless_asset_event(dg.AssetMaterialization("deltas", metadata=RECORD.to_metadata()))
    event = instance.get_latest_materialization_event(dg.AssetKey("deltas"))
    assert event
    assert event.asset_materialization
    names = list(event.asset_materialization.metadata)
    assert names[0] == "dagster/partition_row_count"
    assert names[-1] == RECORD_KEY


def test_a_record_round_trips_through_the_orchestrators_storage() -> None:
    instance = dg.DagsterInstance.ephemeral()
    for number, partition in enumerate(("2026-03-02-13:00", RECORD.partition)):
        metadata = RECORD.to_metadata() if number else {}
        instance.report_runless_asset_event(dg.AssetMaterialization("deltas", partition=partition, metadata=metadata))
    assert Record.latest(instance, "deltas", RECORD.partition) == RECORD
    assert Record.latest_by_partition(instance, "deltas") == {RECORD.partition: RECORD}
    assert Record.latest_by_partition(instance, "deltas", ["2026-03-02-13:00"]) == {}
    with pytest.raises(RecordError, match="never been materialized"):
        Record.latest(instance, "minute_counts")


def test_a_missing_or_foreign_record_says_what_to_do() -> None:
    with pytest.raises(RecordError, match="Materialize the partition again"):
        Record.from_metadata({})
    with pytest.raises(RecordError, match="another version of Tidemark"):
        Record.from_metadata({RECORD_KEY: dg.MetadataValue.json({"asset": "deltas"})})
