"""May this partition be built upon? One answer for commands, for the automation and for a run that begins (O4). No JVM.

Edits are made with delta-rs, as anybody could make them (decision 0010). Before, the automation did not know of them,
and no run asked: 7 added to an hour by hand was summed up into its day and its week, which then passed.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
import msgspec
import pytest

from assets.graph import graph_of
from assets.ingest.schema import DELTAS
from assets.inputs import Inputs, replace_partitions
from assets.rollups.schema import CHAIN, TIERS
from assets.tables import GRAPH as TABLE_GRAPH
from assets.tables import TABLES
from assets.trust import EditedInputError, WrongInputError, found_wrong, refuse_edited, refuse_wrong
from assets.vectors.schema import VECTORS
from assets.windows.catalog import derived_tables
from orchestration import automation
from orchestration.build import build_defs
from orchestration.runs import run
from resources.lake import Lake, TableSpec
from tests.support.batch import send
from tests.support.live import TEN_O_CLOCK, signal, vector
from tests.support.orchestrator import judge, materialize
from tests.support.small_lake import Event, SmallLake
from tests.support.vector_lake import VectorLake, delta
from tests.support.windows import TEN_MINUTES, fixed, sliding, tumbling
from tidemark.model.buckets import bucket_keys
from tidemark.model.deltas import Kind
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US, WEEK_US, from_us
from tidemark.storage.home import Home
from tidemark.streams import Join, JoinForm, Lateness, LatePolicy, Stream, Streams, WindowSpec, WindowType
from tidemark.tables import lake_files
from tidemark.tables.known_table import Edit

if TYPE_CHECKING:
    pass

NOW = datetime(2026, 3, 25, 10, 30, tzinfo=UTC)
# Another hour, day and week than the edited one.
EARLIER_US = TEN_O_CLOCK - WEEK_US
LONG = Range(0, TEN_O_CLOCK + 1_000 * HOUR_US)
# What is made of all of its inputs, by what anybody may edit below it.
OF_EVERYTHING = [
    (TIERS[1].name, "windowed_counts"),
    *((DELTAS.name, name) for name in ("vectors", "vector_conflicts", "vector_checkpoints")),
    (VECTORS.name, "vector_index"),
]


@pytest.fixture
def lake(home: Home) -> Lake:
    return Lake(home)


def counted(home: Home) -> None:
    """Counts of two weeks."""
    tables = SmallLake(home)
    tables.send([Event(EARLIER_US), Event(TEN_O_CLOCK)])
    tables.roll_up_everything()


def add_seven(home: Home, table: str) -> None:
    """As anybody with delta-rs could; of deltas, another priority."""
    found, spec = lake_files.open_table(home.lake / table), TABLES[table]
    assert found is not None
    change = {"priority": "'high'"} if table == DELTAS.name else {"count": "count + 7"}
    start = from_us(spec.grain.floor(TEN_O_CLOCK))
    found.update(updates=change, predicate=f"{spec.partition_by} = '{start:%Y-%m-%d %H:%M:%S}'")


def requested(instance: dg.DagsterInstance, asset: str) -> set[str]:
    found = dg.evaluate_automation_conditions(build_defs(), instance, evaluation_time=NOW)
    return {str(key) for key in found.get_requested_partitions(dg.AssetKey(asset))}


@pytest.mark.parametrize(("source", "target"), CHAIN, ids=lambda spec: spec.name)
def test_o4_what_was_edited_by_hand_is_not_summed_up_by_the_daemon(
    home: Home,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    source: TableSpec,
    target: TableSpec,
) -> None:
    """Neither requested, nor computed by a run that was requested before: the table stays as it was."""
    counted(home)
    edited, beside = (target.grain.key(at_us) for at_us in (TEN_O_CLOCK, EARLIER_US))
    monkeypatch.setattr(automation, "find_stale", lambda _: {target.name: {edited: "", beside: ""}})
    assert requested(instance, target.name) == {edited, beside}
    before = lake_files.table_state(home.lake / target.name)
    add_seven(home, source.name)

    outcome = run(home, instance, [target.name], (edited,), None)
    assert outcome.error is not None
    assert f"is made of {source.name} {source.grain.key(TEN_O_CLOCK)}, where somebody else has changed" in outcome.error
    assert lake_files.table_state(home.lake / target.name) == before
    assert found_wrong(home, instance, source.name) == {source.grain.key(TEN_O_CLOCK)}
    with dg.DagsterInstance.ephemeral() as unused:
        assert requested(unused, target.name) == {beside}, "and what does not hang on it goes on"


@pytest.mark.parametrize(("source", "target"), OF_EVERYTHING)
def test_o4_what_is_made_of_all_of_a_table_waits_for_its_last_edit_to_be_repaired(
    home: Home, instance: dg.DagsterInstance, source: str, target: str
) -> None:
    if target == "windowed_counts":
        counted(home)
        add_seven(home, source)
    else:
        tables = VectorLake(home)
        tables.send([delta(1, "create", "a", [1.0, 2.0])])
        tables.fold()
        found = lake_files.open_table(home.lake / source)
        assert found is not None
        found.update(updates={"key": "'b'"} if source == DELTAS.name else {"vector_id": "'b'"})
    config = {"as_of": from_us(TEN_O_CLOCK).isoformat()} if target == "windowed_counts" else None
    keys = () if TABLES[target].is_whole else tuple(bucket_keys(TABLES[target].buckets))
    outcome = run(home, instance, [target], keys, None, config=config)
    assert outcome.error is not None
    assert f"{target} is made of {source}" in outcome.error
    assert "where somebody else has changed rows (UPDATE in version" in outcome.error


def test_o4_a_run_asks_for_verdicts_when_it_begins(home: Home, instance: dg.DagsterInstance) -> None:
    """It was requested while its input was good; an hour of another day does not stop it."""
    counted(home)
    daily = TABLE_GRAPH["daily_counts"]
    hour, other = (TABLES["hourly_counts"].grain.key(at_us) for at_us in (TEN_O_CLOCK, EARLIER_US))
    materialize(instance, "hourly_counts", [hour, other])
    judge(instance, "hourly_counts", [hour], passed=False)
    day = TABLES["daily_counts"].grain.floor(TEN_O_CLOCK)
    refuse_wrong(instance, home, daily, [Range(day - WEEK_US, day)])
    with pytest.raises(WrongInputError, match=f"made of hourly_counts {hour}, whose check failed"):
        refuse_wrong(instance, home, daily, [Range(day, day + 24 * HOUR_US)])
    outcome = run(home, instance, ["daily_counts"], (TABLES["daily_counts"].grain.key(day),), None)
    assert outcome.error is not None
    assert "whose check failed" in outcome.error


STREAMS = [
    tumbling(TEN_MINUTES, name="tumbled"),
    tumbling(TEN_MINUTES, Lateness(LatePolicy.NEXT_WINDOW), name="moved"),
    sliding(2 * TEN_MINUTES, TEN_MINUTES, name="slid"),
    fixed(TEN_MINUTES, name="arrived"),
    Stream("visits", "shop", Kind.SIGNAL, WindowSpec(WindowType.SESSION, gap_us=TEN_MINUTES)),
    Stream("edits", "shop", Kind.VECTOR, WindowSpec(WindowType.SESSION, gap_us=TEN_MINUTES)),
    Stream("batched", "shop", Kind.SIGNAL, WindowSpec(WindowType.ADAPTIVE), key=()),
]
PAIRS = Join("pairs", "visits", "edits", JoinForm.SESSIONS)
GRAPH = graph_of(derived_tables(Streams({each.name: each for each in STREAMS}, {PAIRS.name: PAIRS})))


@pytest.mark.parametrize(
    ("name", "edited"), [(name, table) for name, derived in GRAPH.items() for table in derived.inputs]
)
def test_o4_no_table_of_a_stream_is_made_of_an_edited_hour(home: Home, lake: Lake, name: str, edited: str) -> None:
    """By event, receipt, stamp, batch, carry or meeting: whatever connects them."""
    specs = {DELTAS.name: DELTAS, **{each: derived.spec for each, derived in GRAPH.items()}}
    send(home, [signal("a"), vector("v", "create", values=[1.0])])
    for spec in specs.values():
        lake.ensure(spec)

    def computed(_: Inputs) -> None:
        raise AssertionError("it was computed")

    with pytest.raises(AssertionError, match="it was computed"):
        replace_partitions(lake, GRAPH[name], computed, LONG)  # type: ignore[arg-type]
    edit(lake, edited)
    with pytest.raises(EditedInputError, match=f"{name} is made of {edited}"):
        replace_partitions(lake, GRAPH[name], computed, LONG)  # type: ignore[arg-type]


def edit(lake: Lake, table: str) -> None:
    """Somebody has changed an hour, as the table's generation remembers it."""
    file = lake.known_file(table)
    file.write(msgspec.structs.replace(file.read(), edits=(Edit(TEN_O_CLOCK, 1, "UPDATE"),)))


def test_o4_an_edit_of_what_is_carried_stops_the_hours_after_it_until_it_is_written_anew(
    home: Home, lake: Lake
) -> None:
    carried = next(derived for derived in GRAPH.values() if derived.is_carried)
    for spec in (DELTAS, carried.spec):
        lake.ensure(spec)
    edit(lake, carried.spec.name)
    after = Range(TEN_O_CLOCK + HOUR_US, TEN_O_CLOCK + 2 * HOUR_US)
    with pytest.raises(EditedInputError):
        refuse_edited(lake, carried, [after])
    refuse_edited(lake, carried, [Range(TEN_O_CLOCK, TEN_O_CLOCK + 2 * HOUR_US)])
    refuse_edited(lake, carried, [Range(TEN_O_CLOCK + 2 * HOUR_US, TEN_O_CLOCK + 3 * HOUR_US)])
