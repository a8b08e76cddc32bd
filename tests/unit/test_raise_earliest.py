"""The earliest time of an event is raised in the log: from then on, after every restart, and on replay (D9, R5)."""

from pathlib import Path

from tests.support.live import (
    TEN_O_CLOCK,
    new_home,
    open_platform,
    reasons,
    signal,
)
from tidemark import Platform
from tidemark.model.timegrid import DAY_US, HOUR_US
from tidemark.observe.status import read_raised
from tidemark.storage.home import Home

CUT = TEN_O_CLOCK - DAY_US


def send(platform: Platform, name: str, at: int) -> None:
    platform.producer("p").write([signal(name, at=at)]).wait()


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
