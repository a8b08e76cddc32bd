"""Which partitions of time there are: every one that something may be put into, and none that lies ahead (O3)."""

import time
from datetime import UTC, datetime
from typing import Any

import click
import dagster as dg
import pytest

from assets.graph import By
from assets.partitions import PARTITIONS, existing, first_partition, partitions_of, shown_partitions
from assets.tables import GRAPH
from assets.windows.catalog import derived_tables, earliest_us
from orchestration.cli import work
from orchestration.warm_host.stamp import stamp_of
from tests.support.windows import Event as Delta
from tests.support.windows import fixed, panes_of, sliding, tumbling
from tidemark.model.settings import Settings
from tidemark.model.timegrid import DAY, DAY_US, HOUR, HOUR_US, MINUTE_US, WEEK, to_us
from tidemark.storage.home import Home
from tidemark.streams import Lateness, LatePolicy, Stream, Streams
from tidemark.tables.first_hour import FirstHourFile

# A Monday, 00:00.
EARLIEST = datetime(2026, 3, 2, tzinfo=UTC)
SETTINGS = Settings(earliest_event_ts=EARLIEST)
NOW_US = to_us(datetime(2026, 3, 25, 10, 30, tzinfo=UTC))
SLIDING = sliding(HOUR_US, 5 * MINUTE_US)


def only(stream: Stream) -> Streams:
    return Streams({stream.name: stream})


def test_all_panes_of_an_event_near_the_earliest_one_lie_in_partitions() -> None:
    partitions = partitions_of(HOUR, SETTINGS, only(SLIDING))
    panes = panes_of(Delta(SETTINGS.earliest_event_us + 20 * MINUTE_US), SLIDING.window)
    assert len(panes) == 12
    assert {HOUR.key(pane) for pane in panes} == {"2026-03-01-23:00", "2026-03-02-00:00"}
    assert all(partitions.has_partition_key(HOUR.key(pane)) for pane in panes)


@pytest.mark.parametrize(
    "stream",
    [
        SLIDING,
        tumbling(90 * MINUTE_US),
        sliding(50 * HOUR_US, 7 * HOUR_US),
        fixed(7 * MINUTE_US),
        tumbling(7 * MINUTE_US, Lateness(LatePolicy.NEXT_WINDOW, 2 * HOUR_US), disorder_us=3 * HOUR_US),
    ],
)
def test_every_partition_that_the_first_deltas_call_for_exists(stream: Stream) -> None:
    """Also by a stamp, which is behind the events by their disorder, and by a receipt before the event."""
    behind_us = {By.STAMP: stream.disorder_us or 0, By.RECEIPT: SETTINGS.clock_skew_ms * 1_000}
    called = {
        spec.grain.key(start)
        for derived in derived_tables(only(stream))
        for spec, need in ((derived.spec, need) for need in derived.needs)
        for moment_us in (SETTINGS.earliest_event_us - behind_us.get(need.by, 0),)
        for start in need.partitions_of(spec, HOUR.floor(moment_us), HOUR_US)
    }
    partitions = partitions_of(HOUR, SETTINGS, only(stream))
    assert [key for key in sorted(called) if not partitions.has_partition_key(key)] == []


def test_days_and_weeks_hold_the_earlier_hours_too() -> None:
    assert partitions_of(DAY, SETTINGS, only(SLIDING)).get_first_partition_key() == "2026-03-01"
    assert partitions_of(WEEK, SETTINGS, only(SLIDING)).get_first_partition_key() == "2026-02-23"


def test_without_windows_that_reach_back_partitions_begin_with_the_earliest_event() -> None:
    for streams in (Streams(), only(tumbling(10 * MINUTE_US))):
        assert partitions_of(HOUR, SETTINGS, streams).get_first_partition_key() == "2026-03-02-00:00"


@pytest.mark.parametrize(
    ("grain", "there", "ahead"),
    [
        (HOUR, ["2026-03-02-00:00", "2026-03-25-10:00", "2026-03-25-11:00"], "2026-03-25-12:00"),
        (DAY, ["2026-03-02", "2026-03-25", "2026-03-26"], "2026-03-27"),
        (WEEK, ["2026-03-02", "2026-03-23", "2026-03-30"], "2026-04-06"),
    ],
)
def test_the_running_partition_exists_and_the_next_and_no_later_one(grain: Any, there: list[str], ahead: str) -> None:
    assert existing(SETTINGS, grain, [ahead, *there], NOW_US) == there


def test_the_command_line_takes_the_hours_that_are_partitions(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home").create("earliest_event_ts = 2026-03-02T00:00:00Z\n")
    first = home.settings.earliest_event_us
    monkeypatch.setattr(work, "partitions", lambda path: {first: None})
    monkeypatch.setattr(work, "first_partition", lambda: HOUR.key(first - HOUR_US))
    assert work._hours(home, first - HOUR_US, None) == ["2026-03-01-23:00", "2026-03-02-00:00"]
    with pytest.raises(click.UsageError, match="Hours lie between 2026-03-01T23:00"):
        work._hours(home, first - 2 * HOUR_US, None)


def test_a_backfill_without_an_end_leaves_out_hours_that_only_a_wrong_clock_has_seen(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home").create("earliest_event_ts = 2026-03-02T00:00:00Z\n")
    first, now_us = home.settings.earliest_event_us, time.time_ns() // 1_000
    for ahead_us in (DAY_US, 365 * DAY_US):
        held: dict[int, None] = dict.fromkeys((first, first + 2 * HOUR_US, HOUR.floor(now_us + ahead_us)))
        monkeypatch.setattr(work, "partitions", lambda _, held=held: held)
        assert work._hours(home, None, None) == ["2026-03-02-00:00", "2026-03-02-01:00", "2026-03-02-02:00"]
        with pytest.raises(click.UsageError, match="Hours lie between"):
            work._hours(home, None, now_us + ahead_us)


def test_what_is_asked_of_the_orchestrator_is_what_it_accepts() -> None:
    """A range that begins before the first partition is an error there, after the tables were committed."""
    partitions = partitions_of(HOUR, SETTINGS, only(SLIDING))
    asked = dg.PartitionKeyRange("2026-03-01-23:00", "2026-03-02-00:00")
    assert list(partitions.get_partition_keys_in_range(asked)) == ["2026-03-01-23:00", "2026-03-02-00:00"]


def test_partitions_begin_with_the_first_week_that_has_data(tmp_path: Any) -> None:
    home = Home(tmp_path / "home").create()
    first = home.settings.earliest_event_us
    assert shown_partitions(home)[HOUR].get_first_partition_key() == HOUR.key(HOUR.floor(earliest_us(home.settings)))
    FirstHourFile(home).include([NOW_US, NOW_US + HOUR_US])
    shown = shown_partitions(home)
    assert shown[WEEK].has_partition_key(WEEK.key(WEEK.floor(NOW_US)))
    first_hour = shown[HOUR].get_first_partition_key()
    assert first_hour is not None
    assert first_hour <= HOUR.key(WEEK.floor(NOW_US))
    assert len(shown[HOUR].get_partition_keys()) < len(partitions_of(HOUR, home.settings).get_partition_keys()) / 2
    assert existing(home.settings, HOUR, [HOUR.key(first)], NOW_US), "what is refreshed is no matter of what is shown"


def test_every_partition_that_data_call_for_exists_also_when_partitions_begin_with_the_data(tmp_path: Any) -> None:
    home = Home(tmp_path / "home").create()
    hour = HOUR.floor(NOW_US)
    FirstHourFile(home).include([hour])
    shown = shown_partitions(home)
    for derived in GRAPH.values():
        grain = derived.spec.grain
        called = {grain.key(own) for need in derived.needs for own in need.partitions_of(derived.spec, hour, HOUR_US)}
        assert [key for key in sorted(called) if not shown[grain].has_partition_key(key)] == []


def test_the_start_goes_back_with_older_rows_and_whoever_has_loaded_it_is_told(tmp_path: Any) -> None:
    home = Home(tmp_path / "home").create()
    file, stamps = FirstHourFile(home), [stamp_of(home)]
    file.include([NOW_US])
    stamps.append(stamp_of(home))
    assert stamps[0] == stamps[1], "all that there may be was loaded, which is enough"
    file.include([NOW_US + 40 * DAY_US])
    stamps.append(stamp_of(home))
    assert stamps[1] == stamps[2], "later rows change nothing"
    file.include([NOW_US - 40 * DAY_US])
    stamps.append(stamp_of(home))
    assert stamps[2] != stamps[3]
    found = file.read()
    assert found
    assert found.first_us == WEEK.floor(NOW_US - 40 * DAY_US)


def test_an_unreadable_file_of_the_first_hour_shows_all_partitions(tmp_path: Any) -> None:
    home = Home(tmp_path / "home").create()
    full = shown_partitions(home)[HOUR].get_first_partition_key()
    FirstHourFile(home).include([NOW_US])
    (home.plans / "first_hour.json").write_text("{")
    assert shown_partitions(home)[HOUR].get_first_partition_key() == full


def test_the_first_hour_that_a_process_knows_is_that_of_its_partitions() -> None:
    assert first_partition() == PARTITIONS[HOUR].get_first_partition_key()
