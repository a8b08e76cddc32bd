"""What the log refuses from some moment on (D9, R5: older events; K4: older changes to vectors): in force at once,
after every restart, and on replay. What only one of the two does is in `test_raise_earliest.py` and
`test_cut_vectors.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
    vector,
)
from tidemark import Platform
from tidemark.model.shard_errors import ShardStoppedError
from tidemark.model.timegrid import DAY_US
from tidemark.observe.status import read_cut, read_raised
from tidemark.storage.home import Home

CUT = TEN_O_CLOCK - DAY_US


class Limit(NamedTuple):
    """One of the two."""

    set_to: Callable[[Platform, int], None]
    read: Callable[[Home], object]
    in_force: object  # what is read once it is `CUT`
    delta: Callable[..., dict[str, Any]]
    reason: str
    told: str  # in the detail of a refusal


LIMITS = [
    Limit(Platform.raise_earliest, read_raised, CUT, signal, "too_old", "older than 2026-03-01T10:00:00Z"),
    Limit(
        Platform.cut_vectors,
        read_cut,
        (CUT, {0: 0}),
        lambda name, at: vector(name, "offset", amount=1.0, at=at),
        "below_horizon",
        "The vector's history before 2026-03-01T10:00:00Z was compacted; a change to it can no longer be taken.",
    ),
]
both = pytest.mark.parametrize("limit", LIMITS, ids=["earliest", "vectors"])


def send(platform: Platform, limit: Limit, name: str, at: int) -> None:
    platform.producer("p").write([limit.delta(name, at=at)]).wait()


@both
def test_d9_k4_what_is_older_is_refused_from_then_on_and_equal_is_on_time(limit: Limit, tmp_path: Path) -> None:
    home = new_home(tmp_path)
    with open_platform(home) as platform:
        send(platform, limit, "before", CUT - 1)
        limit.set_to(platform, CUT)
        send(platform, limit, "old", CUT - 1)
        send(platform, limit, "equal", CUT)
    assert reasons(home) == {"before": None, "old": limit.reason, "equal": None}
    [detail] = [row["detail"] for row in sealed_rows(home) if row["delta_id"] == "old"]
    assert limit.told in detail


@both
def test_r5_k4_it_survives_a_clean_stop_and_the_sealing_of_its_log_file(limit: Limit, tmp_path: Path) -> None:
    home = new_home(tmp_path)
    with open_platform(home) as platform:
        limit.set_to(platform, CUT)
        send(platform, limit, "first", TEN_O_CLOCK)
        platform.seal()
        send(platform, limit, "second", CUT - 1)
    with open_platform(home) as platform:
        send(platform, limit, "third", CUT - 1)
    assert reasons(home) == {"first": None, "second": limit.reason, "third": limit.reason}
    assert limit.read(home) == limit.in_force


@both
def test_r5_k4_it_is_there_after_a_crash_once_it_was_told(limit: Limit, tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        limit.set_to(platform, CUT)
        assert limit.read(home) == limit.in_force
        home = crashed_copy(home, tmp_path / "crashed")
    with open_platform(home) as platform:
        send(platform, limit, "old", CUT - 1)
    assert reasons(home) == {"old": limit.reason}


@both
def test_r5_k4_one_that_could_not_be_synced_was_never_told_and_is_not_in_force(limit: Limit, tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    # The header of the log file and the rules of event time are synced before.
    platform = open_platform(home, HandClock(), disk=FailingDisk(fail_at=3))
    left = crashed_copy(home, tmp_path / "crashed")
    with pytest.raises(ShardStoppedError):
        limit.set_to(platform, CUT)
    with pytest.raises(ShardStoppedError):
        platform.shutdown()
    with open_platform(left) as platform:
        assert limit.read(left) is None
        send(platform, limit, "old", CUT - 1)
    assert reasons(left) == {"old": None}
