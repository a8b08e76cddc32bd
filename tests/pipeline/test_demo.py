"""The demo, small: everything is accounted for, and neither a second run nor a lost table changes a row."""

import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from dagster import AssetKey, AssetRecordsFilter

from assets.tables import EVERY_TABLE, GRAPH, TABLES
from assets.trust import unchecked
from assets.vectors.schema import VECTOR_CHECKPOINTS
from orchestration.cli.app import main
from orchestration.demo.generator import PAST_HOURS_US, generate
from orchestration.instance import open_instance
from resources.record import Record
from tidemark.counts.lake import LakeCounts
from tidemark.counts.windows import Window, shown
from tidemark.model.deltas import Reason, Verdict
from tidemark.model.timegrid import HOUR, MINUTE_US
from tidemark.observe.status import read_status
from tidemark.storage.home import HOME_VARIABLE, Home
from tidemark.tables import lake_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED, DELTAS = 5, 1_200
# What only this size decides; the settings are the demo's own.
ARGUMENTS = ["--seed", str(SEED), "--deltas", str(DELTAS)]


def ask(home: Home, *arguments: str) -> dict[str, Any]:
    """The one JSON object that a command prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*arguments, "--json", "--home", str(home.root)]) == 0
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def epochs(home: Home) -> list[int]:
    return [shard.applied_epoch for shard in read_status(home)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    # Runs point the process's home to theirs; it is put back for the tests after these.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, "unset")
        yield Home(tmp_path_factory.mktemp("demo") / "home")


@pytest.fixture(scope="module")
def first(home: Home, spark: "SparkSession") -> dict[str, Any]:
    """What the first run on an empty home says."""
    return ask(home, "demo", *ARGUMENTS)


@pytest.fixture(scope="module")
def checksums(home: Home, first: dict[str, Any]) -> dict[str, Any]:
    """The tables as the first run left them."""
    return ask(home, "checksum")


def test_every_delta_is_accounted_for_as_it_was_planted(first: dict[str, Any]) -> None:
    fates: Counter[str] = Counter(
        fate for write in generate(seed=SEED, deltas=DELTAS) if not write.is_retry for fate in write.fates
    )
    accepted, duplicate = fates.pop(Verdict.ACCEPTED), fates.pop(Verdict.DUPLICATE)
    assert first["account"] == {
        "received": DELTAS,
        "accepted": accepted,
        "duplicate": duplicate,
        "refused": fates.total(),
        "turned_away": 0,
        "waiting": 0,
    }
    assert first["reasons"] == {str(reason): count for reason, count in fates.items()}
    assert Reason.ID_REUSE in first["reasons"]
    assert first["disagreements"] == []


def test_outcomes_are_integers_that_add_up_to_what_was_received(first: dict[str, Any]) -> None:
    outcomes = dict(first["account"])
    assert all(type(number) is int for number in outcomes.values())
    assert outcomes.pop("received") == sum(outcomes.values())


def test_every_table_is_there_and_every_partition_of_it_was_checked(first: dict[str, Any]) -> None:
    # Nothing is compacted in the demo. The parts of an index are judged with it.
    assert set(first["tables"]) == EVERY_TABLE.keys() - {VECTOR_CHECKPOINTS.name}
    assert {check["asset"] for check in first["checks"]} == TABLES.keys() - {VECTOR_CHECKPOINTS.name}
    assert all(check["passed"] and check["partitions"] for check in first["checks"])
    assert first["tables"]["deltas"]["rows"] == first["account"]["accepted"]


def test_o2_a_lone_hour_is_computed_and_judged_with_the_day_in_one_run_and_has_a_record_of_its_own(
    home: Home, first: dict[str, Any]
) -> None:
    friday, sunday = (HOUR.key(start) for start in PAST_HOURS_US)
    hours = [derived.spec for derived in GRAPH.values() if derived.spec.grain is HOUR]
    with open_instance(home) as instance:
        made_in: set[str] = set()
        for spec in hours:
            chosen = AssetRecordsFilter(AssetKey(spec.name))
            events = instance.fetch_materializations(chosen, limit=1_000).records
            made_by = {event.partition_key: event.run_id for event in events}
            assert len(events) == len(made_by), "each hour once"
            made_in |= {*made_by.values()}
            held = {
                HOUR.key(start): files.rows for start, files in lake_files.partitions(home.lake / spec.name).items()
            }
            records = Record.latest_by_partition(instance, spec.name)
            assert {key: record.rows_out for key, record in records.items() if record.rows_out} == held
            assert records.keys() == made_by.keys() >= {friday, sunday}
            assert unchecked(instance, spec.name) == set()
        assert len(made_in) == 1, "of all tables"


def test_the_busiest_entities_have_the_counts_of_what_was_sent(first: dict[str, Any]) -> None:
    sent: Counter[tuple[str, str]] = Counter()
    for write in generate(seed=SEED, deltas=DELTAS):
        for delta, fate in zip(write.deltas, write.fates, strict=True):
            if not write.is_retry and fate is Verdict.ACCEPTED and getattr(delta, "kind", "") == "signal":
                sent[delta.namespace, delta.signal.entity_id] += delta.signal.count  # type: ignore[union-attr]
    shown = [(entity["namespace"], entity["entity_id"], entity["count"]) for entity in first["top"]]
    expected = sorted(sent.items(), key=lambda item: (-item[1], item[0]))[: len(shown)]
    assert shown == [(*key, count) for key, count in expected]


def test_r2_counts_equal_a_count_over_the_deltas_for_any_entity_signal_window_and_minute(
    home: Home, first: dict[str, Any]
) -> None:
    files = lake_files.files(home.lake / "deltas")
    random, asked = Random(SEED), 0
    with lake_files.quiet_database() as database:
        database.execute(
            "CREATE TABLE signals AS SELECT namespace, signal.*, epoch_us(event_ts) AS at_us "
            "FROM read_parquet($1, hive_partitioning = false) WHERE kind = 'signal'",
            [files],
        )
        things = database.execute("SELECT DISTINCT namespace, entity_id, signal FROM signals ORDER BY ALL").fetchall()
        counts = LakeCounts(home)
        for namespace, entity, signal in random.sample(things, 30):
            mine = [namespace, entity, signal]
            query = "SELECT at_us FROM signals WHERE namespace = $1 AND entity_id = $2 AND signal = $3 ORDER BY ALL"
            times = [at_us for (at_us,) in database.execute(query, mine).fetchall()]
            for as_of_us in minutes_around(random.choice(times), random):
                found = counts.windows(entity, signal, as_of_us, namespace=namespace)
                for window, measure in found.windows.items():
                    start_us = window.start_us(as_of_us)
                    expected = database.execute(
                        "SELECT coalesce(sum(count), 0)::BIGINT, coalesce(sum(weight_millionths), 0)::BIGINT, count(*) "
                        "FROM signals WHERE namespace = $1 AND entity_id = $2 AND signal = $3 AND at_us < $4 "
                        "AND at_us >= $5",
                        [*mine, as_of_us, -(2**62) if start_us is None else start_us],
                    ).fetchone()
                    assert (measure.count, measure.weight_sum, measure.deltas) == expected
                    asked += 1
                assert found.first_us == (times[0] // MINUTE_US * MINUTE_US if times[0] < as_of_us else None)
                assert found.reach.recounted_hours == ()
    assert asked > 500
    # And so does the command, which prints what was just compared.
    said = ask(home, "counts", entity, "--namespace", namespace, "--signal", signal, "--as-of", shown(as_of_us))
    assert said["as_of"] == shown(as_of_us)
    assert said["counts"] == {str(window): measure.count for window, measure in found.windows.items()}


def minutes_around(time_us: int, random: Random) -> list[int]:
    """Minutes at which a window begins or ends just before an event, or just behind it, and some other."""
    minute_us = time_us // MINUTE_US * MINUTE_US
    lengths = [window.length_us or 0 for window in Window]
    edge_us = minute_us + random.choice(lengths)
    return [
        minute_us,
        minute_us + MINUTE_US,
        edge_us,
        edge_us + MINUTE_US,
        edge_us + random.randrange(2_000) * MINUTE_US,
    ]


def test_the_same_day_again_changes_nothing_and_says_so(
    home: Home, first: dict[str, Any], checksums: dict[str, Any]
) -> None:
    before = epochs(home)
    again = ask(home, "demo", *ARGUMENTS)
    assert again["changed"] is False
    assert again["account"] == first["account"]
    assert again["tables"] == first["tables"]
    assert again["checks"] == first["checks"]
    assert epochs(home) == before
    assert ask(home, "checksum") == checksums


@pytest.mark.parametrize(
    "table",
    [
        "weekly_counts",
        pytest.param("deltas", marks=pytest.mark.slow),
        pytest.param("dead_letters", marks=pytest.mark.slow),
        pytest.param("minute_counts", marks=pytest.mark.slow),
        pytest.param("hourly_counts", marks=pytest.mark.slow),
        pytest.param("daily_counts", marks=pytest.mark.slow),
        pytest.param("monthly_counts", marks=pytest.mark.slow),
    ],
)
def test_a_deleted_table_comes_back_row_for_row_without_a_new_epoch(
    home: Home, checksums: dict[str, Any], table: str
) -> None:
    before = epochs(home)
    shutil.rmtree(home.lake / table)
    answer = ask(home, "demo", *ARGUMENTS)
    assert all(check["passed"] for check in answer["checks"])
    assert epochs(home) == before
    assert ask(home, "checksum") == checksums
