"""One wrong clock never moves a watermark or a time of receipt for good (C15)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, look, new_home, open_platform, sealed_rows, signal
from tidemark.counts.warm.follower import Follower
from tidemark.counts.windows import Window
from tidemark.event_time.clock import SLEW_SHARE, SteadyClock
from tidemark.log.manifest import Manifest
from tidemark.model.shard_errors import BackpressureError, ClockLeapError
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US, to_us
from tidemark.storage.home import Home

BOUND_US = 60 * SECOND_US
YEAR_US = 365 * DAY_US
# Beyond the bound, both ways.
LEAPS = st.integers(BOUND_US + 1, 2 * YEAR_US) | st.integers(-2 * YEAR_US, -BOUND_US - 1)
STEPS = st.integers(0, HOUR_US)


class Machine:
    """A wall clock that can be set, and a boot clock that cannot."""

    def __init__(self, now_us: int = TEN_O_CLOCK) -> None:
        self.wall_us, self.boot_us = now_us, 12 * HOUR_US

    def wall(self) -> int:
        return self.wall_us

    def boot(self) -> int:
        return self.boot_us

    def steady(self) -> SteadyClock:
        return SteadyClock(self.wall, self.boot, BOUND_US)

    def wait(self, elapsed_us: int) -> None:
        """Awake or suspended: both clocks count it."""
        self.wall_us += elapsed_us
        self.boot_us += elapsed_us

    def leap(self, by_us: int) -> None:
        self.wall_us += by_us


@given(st.lists(st.tuples(STEPS, LEAPS | st.integers(-BOUND_US, BOUND_US))))
def test_time_never_falls(steps: list[tuple[int, int]]) -> None:
    machine = Machine()
    clock = machine.steady()
    readings = [clock()]
    for elapsed_us, leap_us in steps:
        machine.wait(elapsed_us)
        machine.leap(leap_us)
        readings.append(clock())
    assert readings == sorted(readings)


@given(st.lists(st.tuples(STEPS, LEAPS, STEPS)))
def test_leaps_leave_no_trace_once_the_clock_is_right_again(leaps: list[tuple[int, int, int]]) -> None:
    machine, passed_us = Machine(), 0
    clock = machine.steady()
    for before_us, leap_us, during_us in leaps:
        machine.wait(before_us)
        machine.leap(leap_us)
        machine.wait(during_us)
        passed_us += before_us + during_us
        assert clock() == TEN_O_CLOCK + passed_us  # as if nothing were wrong
        with pytest.raises(ClockLeapError):
            clock.check(None)
        machine.leap(-leap_us)
        assert clock() == TEN_O_CLOCK + passed_us
        clock.check(None)


@given(st.integers(0, 10 * YEAR_US))
def test_suspension_is_no_leap(elapsed_us: int) -> None:
    machine = Machine()
    clock = machine.steady()
    machine.wait(elapsed_us)
    assert clock() == TEN_O_CLOCK + elapsed_us
    clock.check(None)


@given(st.lists(st.integers(1, HOUR_US), max_size=200), st.sampled_from([1, -1]))
def test_slewing_is_no_leap_however_much_it_adds_up_to(steps: list[int], sign: int) -> None:
    machine = Machine()
    clock = machine.steady()
    for elapsed_us in steps:
        machine.wait(elapsed_us)
        machine.leap(sign * (elapsed_us // (2 * SLEW_SHARE)))  # as fast as NTP slews
        assert clock() == machine.wall_us
        clock.check(None)


@given(st.integers(-BOUND_US, BOUND_US))
def test_a_correction_within_the_bound_is_taken_and_time_goes_on_without_falling(by_us: int) -> None:
    machine = Machine()
    clock = machine.steady()
    machine.leap(by_us)
    assert clock() == max(TEN_O_CLOCK, machine.wall_us)
    clock.check(None)
    machine.wait(BOUND_US)
    assert clock() == machine.wall_us


@pytest.mark.parametrize("by_us", [50 * SECOND_US, -50 * SECOND_US])
def test_many_corrections_within_the_bound_are_a_leap_together(by_us: int) -> None:
    machine = Machine()
    clock = machine.steady()
    for _ in range(100):
        machine.wait(SECOND_US)
        machine.leap(by_us)
        clock()
    assert abs(clock() - (TEN_O_CLOCK + 100 * SECOND_US)) <= BOUND_US + SECOND_US
    with pytest.raises(ClockLeapError):
        clock.check(None)


def test_a_clock_behind_the_log_at_a_start_stands_at_its_end_until_it_has_caught_up() -> None:
    machine = Machine(TEN_O_CLOCK - HOUR_US)
    clock = machine.steady()
    clock.expect(TEN_O_CLOCK)
    assert clock() == TEN_O_CLOCK
    with pytest.raises(ClockLeapError, match="the log was written until 2026-03-02T10:00:00Z"):
        clock.check(None)
    machine.wait(HOUR_US - BOUND_US)
    assert clock() == TEN_O_CLOCK
    clock.check(None)
    machine.wait(2 * BOUND_US)
    assert clock() == machine.wall_us


@given(st.integers(-BOUND_US, YEAR_US))
def test_a_clock_that_was_behind_the_log_at_a_start_is_believed_when_it_is_set(ahead_us: int) -> None:
    # The machine started without its time, and was told it a minute later.
    machine = Machine(0)
    clock = machine.steady()
    clock.expect(TEN_O_CLOCK)
    clock()
    machine.wait(MINUTE_US)
    machine.wall_us = TEN_O_CLOCK + ahead_us
    assert clock() == max(TEN_O_CLOCK, machine.wall_us)
    clock.check(None)
    machine.leap(YEAR_US)
    clock()
    with pytest.raises(ClockLeapError, match="The clock leapt"):
        clock.check(None)


def test_a_clock_beyond_any_calendar_is_told_as_a_number() -> None:
    machine = Machine()
    clock = machine.steady()
    machine.wall_us = 2**62
    assert clock() == TEN_O_CLOCK
    with pytest.raises(ClockLeapError, match=str(2**62)):
        clock.check(None)


# A platform on real files.


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path / "home", "shards = 2\n")


def written(home: Home) -> list[int]:
    """When each row was received, after the stamps were found to be below that."""
    rows = [row for shard in range(home.settings.shards) for row in sealed_rows(home, shard)]
    for row in rows:
        assert row["watermark_ts"] is None or row["watermark_ts"] < row["received_ts"]
    return [to_us(row["received_ts"]) for row in rows]


@pytest.mark.parametrize("leap_us", [YEAR_US, -YEAR_US, 2 * MINUTE_US, -2 * MINUTE_US])
def test_a_write_during_a_leap_is_given_back_and_its_number_stays_free(home: Home, leap_us: int) -> None:
    machine = Machine()
    with open_platform(home, machine.wall, boot=machine.boot) as platform:
        producer = platform.producer("web")
        first = producer.write([signal("1")])
        first.wait()
        machine.leap(leap_us)
        deltas = [signal("2", at=machine.wall_us)]
        with pytest.raises(ClockLeapError, match="Set it right") as refused:
            producer.try_write(deltas)
        assert refused.value.write is deltas
        with pytest.raises(BackpressureError):
            producer.write(deltas, timeout=0.01)
        assert producer.resend(first).wait().is_retry  # an answer needs no clock
        platform.seal()
        machine.leap(-leap_us)
        machine.wait(SECOND_US)
        assert producer.write([signal("2", at=TEN_O_CLOCK)]).wait().accepted == 1
    assert written(home) == [TEN_O_CLOCK, TEN_O_CLOCK + SECOND_US]
    for shard in range(2):
        assert all(entry.sealed_us <= machine.wall_us for entry in Manifest(home.segments(shard)).all())


def test_watermarks_idleness_and_seals_go_on_during_a_leap(home: Home) -> None:
    machine = Machine()
    with open_platform(home, machine.wall, boot=machine.boot) as platform:
        platform.producer("web").write([signal("1")]).wait()
        machine.leap(YEAR_US)
        machine.wait(20 * MINUTE_US)  # a quiet file is sealed after ten
        for shard in platform.shards.values():
            look(shard)
            shard.open_producer("another")  # returns behind a flush
        shard = next(shard for shard in platform.shards.values() if shard.applied_epoch)
        shard._sealing.wait()
        assert shard.core.sealed_epoch == 1
        assert not shard.event_time().active
    assert written(home) == [TEN_O_CLOCK]


def test_a_leap_leaves_nothing_for_the_next_process(home: Home) -> None:
    machine = Machine()
    with open_platform(home, machine.wall, boot=machine.boot) as platform:
        platform.producer("web").write([signal("1")]).wait()
        machine.leap(YEAR_US)
        with pytest.raises(ClockLeapError):
            platform.producer("web").try_write([signal("2")])
    machine.leap(-YEAR_US)
    machine.wait(MINUTE_US)
    with open_platform(home, machine.wall, boot=machine.boot) as platform:
        late = platform.producer("web").write([signal("2", at=machine.wall_us)]).wait()
        assert late.accepted == 1
    assert written(home) == [TEN_O_CLOCK, TEN_O_CLOCK + MINUTE_US]


@pytest.mark.parametrize("has_boot", [True, False])
def test_a_process_that_starts_with_a_clock_behind_the_log_refuses_writes_and_answers_retries(
    home: Home, has_boot: bool
) -> None:
    machine = Machine()
    boot: Callable[[], int] | None = machine.boot if has_boot else None
    with open_platform(home, machine.wall, boot=boot) as platform:
        platform.producer("web").write([signal("1")]).wait()
    machine.leap(-HOUR_US)
    with open_platform(home, machine.wall, boot=boot) as platform:
        again = platform.producer("web", from_start=True)
        assert again.write([signal("1")]).wait().is_retry
        with pytest.raises(ClockLeapError, match="the log was written until 2026-03-02T10:00:00Z"):
            again.try_write([signal("2")])
        with pytest.raises(ClockLeapError):
            again.write([signal("2")])  # nobody would wait for ever for somebody else to set a clock
        machine.leap(HOUR_US)
        machine.wait(SECOND_US)
        again.write([signal("2")]).wait()
    assert written(home) == [TEN_O_CLOCK, TEN_O_CLOCK + SECOND_US]


def test_counters_that_follow_a_platform_go_by_its_clock(tmp_path: Path) -> None:
    home, machine = new_home(tmp_path / "one"), Machine()
    with (
        open_platform(home, machine.wall, boot=machine.boot) as platform,
        Follower(platform, home, capacity=1 << 10, look_seconds=3600) as follower,
    ):
        receipt = platform.producer("web").write([signal("1")]).wait()
        platform.shards[0].close_batch()
        assert follower.wait(receipt.epochs, timeout=30)
        machine.leap(YEAR_US)
        follower.look()
        machine.leap(-YEAR_US)
        machine.wait(MINUTE_US)
        follower.look()
        assert follower.counters.count("shop", "item-1", "view", Window.HOUR) == 1
