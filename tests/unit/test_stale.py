"""What a changed definition makes stale: all that was made under the former one, and nothing else (O3)."""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import msgspec
import pytest

from assets.graph import Derived, graph_of
from assets.ingest.records import NewInHour, _changed
from assets.stale import stale_partitions
from assets.windows.catalog import definition_of, derived_tables
from tests.support.orchestrator import record_of, tell
from tests.support.windows import stream, tumbling
from tidemark.log.manifest import HourCounts
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from tidemark.storage.home import Home
from tidemark.streams import Join, JoinForm, Stream, Streams, WindowSpec, WindowType
from tidemark.tables.known_table import KnownTable

TEN, FIVE = tumbling(10 * MINUTE_US), tumbling(5 * MINUTE_US)
SESSIONS = stream(WindowSpec(WindowType.SESSION, gap_us=15 * MINUTE_US), name="visits")
NOON, ONE, TWO = "2026-03-02-12:00", "2026-03-02-13:00", "2026-03-02-14:00"


def graph(*streams: Stream) -> Mapping[str, Derived]:
    return graph_of(derived_tables(Streams({each.name: each for each in streams})))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


def made(
    instance: dg.DagsterInstance,
    asset: str,
    partition: str,
    definition: str | None = None,
    *,
    version: int = 1,
    changed: Mapping[str, int] | None = None,
) -> None:
    """A record; of `deltas` as of a version, of other tables made from that version of it."""
    is_root = asset == "deltas"
    source, own = ({}, version) if is_root else ({"deltas": version}, 1)
    tell(instance, record_of(asset, partition, own, source, definition=definition, changed=dict(changed or {})))


def test_every_partition_under_another_definition_is_stale_also_where_no_delta_calls_for_it(home: Home) -> None:
    """What the former definition put there has to go."""
    with dg.DagsterInstance.ephemeral() as instance:
        made(instance, "deltas", NOON)
        for hour in (NOON, ONE):
            made(instance, TEN.name, hour, definition_of(TEN))
        assert stale_partitions(instance, home, graph=graph(TEN))[TEN.name] == {}
        why = "its definition has changed since"
        assert stale_partitions(instance, home, graph=graph(FIVE))[TEN.name] == {NOON: why, ONE: why}
        for hour in (NOON, ONE):
            made(instance, TEN.name, hour, definition_of(FIVE))
        assert stale_partitions(instance, home, graph=graph(FIVE))[TEN.name] == {}


def test_what_was_recorded_without_a_definition_is_left_alone(home: Home) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        made(instance, "deltas", NOON)
        made(instance, TEN.name, NOON)
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


def test_a_stream_is_stale_only_by_deltas_of_its_own_namespace_and_kind(home: Home) -> None:
    """O3: a hundred streams cost nothing when one of them is touched."""
    ours, theirs = f"{TEN.namespace}/{TEN.kind}", "elsewhere/signal"
    with dg.DagsterInstance.ephemeral() as instance:
        made(instance, "deltas", NOON, version=1, changed={ours: 1})
        made(instance, "deltas", ONE, version=1, changed={theirs: 1})
        assert set(stale_partitions(instance, home, graph=graph(TEN))[TEN.name]) == {NOON}
        made(instance, TEN.name, NOON, definition_of(TEN), version=1)
        made(instance, "deltas", NOON, version=2, changed={ours: 1, theirs: 2})
        assert stale_partitions(instance, home, graph=graph(TEN))[TEN.name] == {}
        made(instance, "deltas", NOON, version=3, changed={ours: 3, theirs: 2})
        assert set(stale_partitions(instance, home, graph=graph(TEN))[TEN.name]) == {NOON}
        made(instance, TEN.name, NOON, definition_of(TEN), version=3)
        made(instance, "deltas", NOON, version=4)
        assert set(stale_partitions(instance, home, graph=graph(TEN))[TEN.name]) == {NOON}, "not known means any"


NEW = NewInHour(2, {"shop/signal"})
KNOWN = KnownTable(version=7)


@pytest.mark.parametrize(
    ("new", "before", "in_log", "expected"),
    [
        pytest.param(NEW, None, 2, {"shop/signal": 7}, id="all that the log ever had for the hour is new"),
        pytest.param(NEW, None, 3, {}, id="some of it is older, and nobody has recorded what"),
        pytest.param(NEW, {"shop/vector": 3}, 3, {"shop/vector": 3, "shop/signal": 7}, id="beside what was there"),
        pytest.param(NEW, {"shop/signal": 3}, 3, {"shop/signal": 7}, id="in place of what was there"),
        pytest.param(NEW, {}, 3, {}, id="what was there is not known"),
        pytest.param(NewInHour(2, set(), is_told=False), {"shop/vector": 3}, 3, {}, id="the log does not tell"),
        pytest.param(None, {"shop/vector": 3}, 3, {}, id="a rebuild may change anything"),
    ],
)
def test_a_record_of_deltas_says_what_changed_or_that_it_does_not_know(
    new: NewInHour | None, before: dict[str, int] | None, in_log: int, expected: dict[str, int]
) -> None:
    previous = None
    if before is not None:
        previous = record_of("deltas", NOON, 3, changed=before)
    assert _changed(new, previous, HourCounts(accepted=in_log), KNOWN) == expected
    if previous and expected:
        assert _changed(new, previous, HourCounts(accepted=in_log), KnownTable(generation=2, version=7)) == {}
