"""One question about many tables answers what Dagster's own methods answer for each of them, also after a wipe."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as db
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.check_states import CheckState, check_key, check_states, check_states_of
from assets.graph import graph_of
from assets.names import CHECK_NAME
from assets.stale import stale_partitions
from assets.windows.catalog import definition_of, derived_tables
from orchestration.instance import open_instance
from resources.last_events import LastResult, last_made, last_results
from tests.support.orchestrator import judge_as_of, record_of, refuse, tell
from tests.support.windows import tumbling
from tidemark.model.timegrid import MINUTE_US
from tidemark.storage.home import Home
from tidemark.streams import Streams

TABLES = ("first", "second", "third")
PARTITIONS = ("2026-03-02-12:00", "2026-03-02-13:00", None)
NOON = PARTITIONS[0]
MADE, PASSED, FAILED, WIPED = "made", "passed", "failed", "wiped"

# What happens, in order: to which table, which partition of it, and what.
HISTORIES = st.lists(
    st.tuples(*map(st.sampled_from, (TABLES, PARTITIONS, [MADE, MADE, PASSED, FAILED, WIPED]))), max_size=20
)


def happen(instance: dg.DagsterInstance, table: str, partition: str | None, what: str) -> None:
    if what == MADE:
        instance.report_runless_asset_event(dg.AssetMaterialization(table, partition=partition))
    elif what == WIPED:
        instance.wipe_assets([dg.AssetKey(table)])
    elif number := last_made(instance, [table])[table].get(partition):
        judge_as_of(instance, table, partition, number, passed=what == PASSED)
    elif partition:
        refuse(instance, table, partition, "It has no record.")


@settings(max_examples=30)
@given(HISTORIES)
def test_all_tables_at_once_are_answered_as_each_of_them_alone(history: list[tuple[str, str | None, str]]) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for table, partition, what in history:
            happen(instance, table, partition, what)
        storage, kind = instance.event_log_storage, dg.DagsterEventType.ASSET_MATERIALIZATION
        made, results = last_made(instance, TABLES), last_results(instance, TABLES, CHECK_NAME)
        assert made.keys() == set(TABLES)
        for table in TABLES:
            of_partitions = {key: number for key, number in made[table].items() if key}
            assert of_partitions == storage.get_latest_storage_id_by_partition(dg.AssetKey(table), kind)
            infos = storage.get_asset_check_partition_info([check_key(table)])
            told = {
                LastResult(
                    info.partition_key,
                    info.latest_execution_status.value,
                    info.latest_check_event_storage_id,
                    info.latest_target_materialization_storage_id,
                )
                for info in infos
            }
            assert set(results.get(table, ())) == told
            for info in infos if not of_partitions else ():
                assert made[table].get(None) == info.latest_materialization_storage_id
        assert check_states_of(instance, TABLES) == {table: check_states(instance, table) for table in TABLES}


def test_a_planted_result_on_other_rows_is_seen() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for what in (MADE, PASSED):
            happen(instance, "first", NOON, what)
        assert check_states_of(instance, TABLES)["first"] == {NOON: CheckState.PASSED}
        happen(instance, "first", NOON, MADE)
        assert check_states_of(instance, TABLES)["first"] == {NOON: CheckState.UNCHECKED}
        happen(instance, "first", NOON, WIPED)
        assert check_states_of(instance, TABLES) == {table: {} for table in TABLES}


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements to any database while this holds."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        seen.append(statement)

    db.event.listen(db.Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        db.event.remove(db.Engine, "before_cursor_execute", note)


@pytest.mark.parametrize("streams", [1, 40])
def test_a_stream_that_nothing_touched_costs_no_question(tmp_path: Path, streams: int) -> None:
    """What is stale, and what has not passed its check, is as many statements of forty tables as of one."""
    home = Home(tmp_path / "home").create()
    defined = [tumbling(10 * MINUTE_US, name=f"stream_{number}") for number in range(streams)]
    graph = graph_of(derived_tables(Streams({each.name: each for each in defined})))
    with open_instance(home) as instance:
        tell(instance, record_of("deltas", str(NOON), changed={"shop/signal": 1}))
        for each in defined:
            tell(instance, record_of(each.name, str(NOON), 1, {"deltas": 1}, definition=definition_of(each)))
        stale_partitions(instance, home, graph=graph)
        with statements() as seen:
            stale = stale_partitions(instance, home, graph=graph)
            states = check_states_of(instance, tuple(graph))
    assert stale.keys() == graph.keys() == states.keys()
    assert len([each for each in seen if "event_logs" in each or "asset_" in each]) <= 8, seen
