"""What a changed definition makes stale: all that was made under the former one, and nothing else (O3)."""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import msgspec
import pytest

from assets.graph import Derived, graph_of
from assets.stale import stale_partitions
from assets.windows.catalog import definition_of, derived_tables
from resources.record import Record
from tests.support.windows import stream, tumbling
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from tidemark.storage.home import Home
from tidemark.streams import Join, JoinForm, Stream, Streams, WindowSpec, WindowType

TEN, FIVE = tumbling(10 * MINUTE_US), tumbling(5 * MINUTE_US)
SESSIONS = stream(WindowSpec(WindowType.SESSION, gap_us=15 * MINUTE_US), name="visits")
NOON, ONE, TWO = "2026-03-02-12:00", "2026-03-02-13:00", "2026-03-02-14:00"


def graph(*streams: Stream) -> Mapping[str, Derived]:
    return graph_of(derived_tables(Streams({each.name: each for each in streams})))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


def tell(instance: dg.DagsterInstance, asset: str, partition: str, definition: str | None = None) -> None:
    is_root = asset == "deltas"
    record = Record(
        asset=asset,
        partition=partition,
        generation=1,
        table_version=1,
        table_id=asset,
        input_versions={} if is_root else {"deltas": 1},
        input_generations={} if is_root else {"deltas": 1},
        definition=definition,
    )
    instance.report_runless_asset_event(
        dg.AssetMaterialization(asset, partition=partition, metadata=record.to_metadata())
    )


def test_every_partition_under_another_definition_is_stale_also_where_no_delta_calls_for_it(home: Home) -> None:
    """What the former definition put there has to go."""
    with dg.DagsterInstance.ephemeral() as instance:
        tell(instance, "deltas", NOON)
        for hour in (NOON, ONE):
            tell(instance, TEN.name, hour, definition_of(TEN))
        assert stale_partitions(instance, home, graph=graph(TEN))[TEN.name] == {}
        why = "its definition has changed since"
        assert stale_partitions(instance, home, graph=graph(FIVE))[TEN.name] == {NOON: why, ONE: why}
        for hour in (NOON, ONE):
            tell(instance, TEN.name, hour, definition_of(FIVE))
        assert stale_partitions(instance, home, graph=graph(FIVE))[TEN.name] == {}


def test_what_was_recorded_without_a_definition_is_left_alone(home: Home) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        tell(instance, "deltas", NOON)
        tell(instance, TEN.name, NOON)
        assert stale_partitions(instance, home, graph=graph(FIVE))[TEN.name] == {}


def test_every_table_of_definitions_knows_its_own() -> None:
    tables = graph(TEN, SESSIONS)
    assert {name: each.definition for name, each in tables.items()} == {
        TEN.name: definition_of(TEN),
        "visits_open": definition_of(SESSIONS),
        "visits": definition_of(SESSIONS),
        "late_deltas": definition_of(TEN, SESSIONS),
    }


def test_a_definition_is_another_one_when_its_rows_are() -> None:
    same = msgspec.structs.replace(TEN, description="In other words.", disorder_us=SECOND_US, idle_us=DAY_US)
    assert definition_of(same) == definition_of(TEN)
    others = [
        FIVE,
        msgspec.structs.replace(TEN, key=()),
        msgspec.structs.replace(TEN, where=(("signal", "view"),)),
        msgspec.structs.replace(TEN, aggregates=()),
        msgspec.structs.replace(TEN, late=msgspec.structs.replace(TEN.late, allowed_us=HOUR_US)),
    ]
    assert len({definition_of(each) for each in (TEN, *others)}) == len(others) + 1


def test_a_join_means_something_else_when_one_of_its_sides_does() -> None:
    join = Join("both", "one", "other", JoinForm.SAME_PANE, "In words.")
    assert definition_of(join, TEN, TEN) != definition_of(join, TEN, FIVE)
    assert definition_of(msgspec.structs.replace(join, description=""), TEN, TEN) == definition_of(join, TEN, TEN)
