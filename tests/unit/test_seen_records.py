"""Records that one process has read are known to the next, and a damaged file costs nothing but reading."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.instance import open_instance
from resources import seen_records
from resources.record import Record
from resources.seen_records import SeenRecords
from tests.support.orchestrator import materialize, record_of, tell
from tidemark.storage.home import Home

HOURS = [f"2026-03-02-{hour:02d}:00" for hour in range(5)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    with open_instance(home) as found:
        yield found


class Counted:
    """An instance that counts the events that are fetched from it."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance, self.fetched = instance, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    def fetch_materializations(self, *arguments: Any, **options: Any) -> Any:
        found = self._instance.fetch_materializations(*arguments, **options)
        self.fetched += len(found.records)
        return found


def ask(home: Home, instance: dg.DagsterInstance) -> tuple[dict[str, Record], int]:
    """As a new process would; and how many events that took."""
    counted, seen = Counted(instance), SeenRecords(home, instance)
    found = Record.latest_by_partition(counted, "deltas", seen=seen)  # type: ignore[arg-type]
    seen.save()
    return found, counted.fetched


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


def test_a_materialization_without_a_record_is_remembered_as_such(home: Home, instance: dg.DagsterInstance) -> None:
    materialize(instance, "deltas", HOURS[:1])
    assert ask(home, instance) == ({}, 1)
    assert ask(home, instance) == ({}, 0)


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
        assert {hour: record.table_version for hour, record in found.items()} == dict.fromkeys(HOURS[:2], version)


def test_the_numbers_of_another_storage_are_others(home: Home, instance: dg.DagsterInstance) -> None:
    tell(instance, record_of("deltas", HOURS[0]))
    ask(home, instance)
    with dg.DagsterInstance.ephemeral() as other:
        assert not SeenRecords(home, other)
