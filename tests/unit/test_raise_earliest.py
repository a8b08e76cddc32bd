"""The earliest time of an event is raised in the log: from then on, after every restart, and on replay (D9, R5)."""

from pathlib import Path

import pytest

from tests.support.live import (
    TEN_O_CLOCK,
    FailingDisk,
    HandClock,
    crashed_copy,
    new_home,
    open_platform,
    reasons,
    sealed_rows,
    signal,
)
from tidemark import Platform
from tidemark.model.shard_errors import ShardStoppedError
from tidemark.model.timegrid import DAY_US, HOUR_US
from tidemark.observe.status import read_raised
from tidemark.storage.home import Home

CUT = TEN_O_CLOCK - DAY_US


def send(platform: Platform, name: str, at: int) -> None:
    platform.producer("p").write([signal(name, at=at)]).wait()


def test_d9_older_events_are_refused_from_then_on_and_equal_is_on_time(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    with open_platform(home) as platform:
        send(platform, "before", CUT - 1)
        platform.raise_earliest(CUT)
        send(platform, "old", CUT - 1)
        send(platform, "equal", CUT)
    assert reasons(home) == {"before": None, "old": "too_old", "equal": None}
    [detail] = [row["detail"] for row in sealed_rows(home) if row["delta_id"] == "old"]
    assert "older than 2026-03-01T10:00:00Z" in detail


def test_r5_it_survives_a_clean_stop_and_the_sealing_of_its_log_file(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    with open_platform(home) as platform:
        platform.raise_earliest(CUT)
        send(platform, "first", TEN_O_CLOCK)
        platform.seal()
        send(platform, "second", CUT - 1)
    with open_platform(home) as platform:
        send(platform, "third", CUT - 1)
    assert reasons(home) == {"first": None, "second": "too_old", "third": "too_old"}
    assert read_raised(home) == CUT


def test_r5_it_is_there_after_a_crash_once_it_was_told(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        platform.raise_earliest(CUT)
        assert read_raised(home) == CUT
        home = crashed_copy(home, tmp_path / "crashed")
    with open_platform(home) as platform:
        send(platform, "old", CUT - 1)
    assert reasons(home) == {"old": "too_old"}


def test_r5_it_never_falls_and_the_settings_hold_where_they_are_higher(tmp_path: Path) -> None:
    home = new_home(tmp_path, "earliest_event_ts = 2026-03-01T00:00:00Z\n")
    with open_platform(home) as platform:
        platform.raise_earliest(CUT)
        platform.raise_earliest(CUT - HOUR_US)
        send(platform, "old", CUT - 1)
    assert read_raised(home) == CUT
    (home.root / "platform.toml").write_text("earliest_event_ts = 2026-03-02T09:30:00Z\n")
    home = Home(tmp_path)
    with open_platform(home) as platform:
        send(platform, "between", TEN_O_CLOCK - HOUR_US)
    assert reasons(home) == {"old": "too_old", "between": "too_old"}
    (home.root / "platform.toml").write_text("")
    with open_platform(Home(tmp_path)) as platform:
        send(platform, "again", TEN_O_CLOCK - HOUR_US + 1)
    assert reasons(home)["again"] is None


def test_r5_every_shard_is_raised_or_it_does_not_count(tmp_path: Path) -> None:
    home = new_home(tmp_path, "shards = 3\n")
    with open_platform(home) as platform:
        platform.shards[1].raise_earliest(CUT)
        assert read_raised(home) is None
        platform.raise_earliest(CUT + HOUR_US)
    assert read_raised(home) == CUT + HOUR_US


def test_r5_a_raise_that_could_not_be_synced_was_never_told(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    # The header of the log file and the rules of event time are synced before.
    platform = open_platform(home, HandClock(), disk=FailingDisk(fail_at=3))
    with pytest.raises(ShardStoppedError):
        platform.raise_earliest(CUT)
