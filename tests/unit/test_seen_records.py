"""Records that one process has read are known to the next, and a damaged file costs nothing but reading."""

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.stale import stale_partitions
from orchestration.instance import open_instance
from resources import seen_records
from resources.record import Record, forget_reused
from resources.seen_records import SeenRecords
from tests.support.orchestrator import materialize, record_of, tell
from tidemark.storage.home import Home

HOURS = [f"2026-03-02-{hour:02d}:00" for hour in range(5)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


class Counted:
    """An instance that counts the events that are fetched from it, and how often any are."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance, self.fetched, self.calls = instance, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    def fetch_materializations(self, *arguments: Any, **options: Any) -> Any:
        found = self._instance.fetch_materializations(*arguments, **options)
        self.fetched += len(found.records)
        self.calls += 1
        return found


def ask(home: Home, instance: dg.DagsterInstance) -> tuple[dict[str, Record], int]:
    """As a new process would; and how many events that took."""
    counted, seen = Counted(instance), SeenRecords(home, instance)
    forget_reused(instance, seen)
    found = Record.latest_by_partition(counted, "deltas", seen=seen)  # type: ignore[arg-type]
    seen.save()
    return found, counted.fetched


def versions(found: dict[str, Record]) -> dict[str, int]:
    return {hour: record.table_version for hour, record in found.items()}


def test_what_was_read_is_not_fetched_again(home: Home, instance: dg.DagsterInstance) -> None:
    for hour in HOURS:
        tell(instance, record_of("deltas", hour, changed={"shop/signal": 3}))
    first, fetched = ask(home, instance)
    assert (set(first), fetched) == (set(HOURS), 5)
    assert ask(home, instance) == (first, 0)
    tell(instance, record_of("deltas", HOURS[0], 2))
    again, fetched = ask(home, instance)
    assert (again[HOURS[0]].table_version, fetched) == (2, 1)
    assert ask(home, instance) == (again, 0)


def test_a_materialization_without_a_record_is_not_remembered(home: Home, instance: dg.DagsterInstance) -> None:
    """Nothing would say whether its number was given again since."""
    materialize(instance, "deltas", HOURS[:1])
    assert ask(home, instance) == ({}, 1)
    instance.wipe_assets([dg.AssetKey("deltas")])
    tell(instance, record_of("deltas", HOURS[0], 2))
    assert versions(ask(home, instance)[0]) == {HOURS[0]: 2}


@pytest.mark.parametrize("cut", [0, 1, 40, -2, -1])
def test_a_torn_or_foreign_line_is_read_from_the_orchestrator(
    home: Home, instance: dg.DagsterInstance, cut: int
) -> None:
    for hour in HOURS:
        tell(instance, record_of("deltas", hour))
    whole, _ = ask(home, instance)
    [path] = home.dagster.glob("records-*.jsonl")
    path.write_bytes(b"\xff nobody wrote this\n" + path.read_bytes()[:cut])
    assert ask(home, instance)[0] == whole
    assert ask(home, instance) == (whole, 0)


def test_a_file_that_is_mostly_about_the_past_is_written_anew(
    home: Home, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_records, "FEW_LINES", 4)
    for version in range(6):
        for hour in HOURS[:2]:
            tell(instance, record_of("deltas", hour, version))
        found, _ = ask(home, instance)
        [path] = home.dagster.glob("records-*.jsonl")
        assert len(path.read_text().split()) <= 6
        assert versions(found) == dict.fromkeys(HOURS[:2], version)


def test_the_numbers_of_another_storage_are_others(home: Home, instance: dg.DagsterInstance) -> None:
    tell(instance, record_of("deltas", HOURS[0]))
    ask(home, instance)
    with dg.DagsterInstance.ephemeral() as other:
        assert not SeenRecords(home, other)


def test_numbers_that_are_given_again_after_a_wipe_are_those_of_other_events(
    home: Home, instance: dg.DagsterInstance
) -> None:
    """The page of an asset has "Wipe materializations", that of a run "Delete"; SQLite goes on below what they took."""
    for hour in HOURS:
        tell(instance, record_of("deltas", hour))
    first, _ = ask(home, instance)
    memory: dict[int, Record] = {}
    assert Record.latest_by_partition(instance, "deltas", seen=memory) == first
    instance.wipe_assets([dg.AssetKey("deltas")])
    for hour in HOURS[:3]:
        tell(instance, record_of("deltas", hour, 2))
    forget_reused(instance, memory)
    assert versions(Record.latest_by_partition(instance, "deltas", seen=memory)) == dict.fromkeys(HOURS[:3], 2)
    found, fetched = ask(home, instance)
    assert (versions(found), fetched) == (dict.fromkeys(HOURS[:3], 2), 3)
    for hour in HOURS[3:]:
        tell(instance, record_of("deltas", hour, 3))
    assert ask(home, instance)[1] == 2, "what was forgotten has left the file, and what was read since is in it"


def test_events_that_are_gone_below_others_that_stay_cost_no_reading(home: Home, instance: dg.DagsterInstance) -> None:
    """Numbers below the highest one are never given again."""
    tell(instance, record_of("minute_counts", HOURS[0]))
    for hour in HOURS:
        tell(instance, record_of("deltas", hour))
    ask(home, instance)
    instance.wipe_assets([dg.AssetKey("minute_counts")])
    tell(instance, record_of("deltas", HOURS[0], 2))
    assert ask(home, instance)[1] == 1


def test_a_record_of_another_table_or_partition_is_read_again(home: Home, instance: dg.DagsterInstance) -> None:
    for hour in HOURS[:3]:
        tell(instance, record_of("deltas", hour, 7))
    ask(home, instance)
    wrong = SeenRecords(home, instance)
    wrong.update({1: record_of("minute_counts", HOURS[0]), 2: record_of("deltas", HOURS[4])})
    wrong.save()
    found, fetched = ask(home, instance)
    assert (versions(found), fetched) == (dict.fromkeys(HOURS[:3], 7), 2)
    assert ask(home, instance) == (found, 0)


def test_a_database_that_is_older_than_the_file_is_believed(home: Home) -> None:
    """As when a database is restored by itself: its numbers are given again, to other events."""
    history, backup = home.dagster / "history", home.root.parent / "backup"
    with open_instance(home) as instance:
        tell(instance, record_of("deltas", HOURS[0]))
        ask(home, instance)
    shutil.copytree(history, backup)
    with open_instance(home) as instance:
        for hour in HOURS[1:]:
            tell(instance, record_of("deltas", hour))
        assert len(ask(home, instance)[0]) == 5
    shutil.rmtree(history)
    shutil.copytree(backup, history)
    with open_instance(home) as instance:
        for hour in HOURS[1:]:
            tell(instance, record_of("deltas", hour, 2))
        assert versions(ask(home, instance)[0]) == {HOURS[0]: 1, **dict.fromkeys(HOURS[1:], 2)}
    assert len([*home.dagster.glob("records-*.jsonl")]) == 1


def test_a_look_asks_once_whether_its_records_still_hold(home: Home, instance: dg.DagsterInstance) -> None:
    seen: dict[int, Record] = {}
    for new, calls in ((1, 1), (0, 1), (2, 2)):
        for hour in HOURS[:new]:
            tell(instance, record_of("deltas", hour))
        counted = Counted(instance)
        stale_partitions(counted, home, seen=seen, graph={})  # type: ignore[arg-type]
        assert counted.calls == calls
    instance.wipe_assets([dg.AssetKey("deltas")])
    stale_partitions(instance, home, seen=seen, graph={})
    assert seen == {}
