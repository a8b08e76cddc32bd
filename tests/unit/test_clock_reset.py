"""A log that was written under a wrong clock goes on from the right time once it is told so (C15)."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chaos.disks import EVERY_KIND, Moment, SimulatedDisk, Survival
from chaos.kernel import PowerCut
from chaos.watching import BusyDisk, Cut, StepSealing
from resources.record import Record, believed, not_below
from tests.support.live import TEN_O_CLOCK, HandClock, look, new_home, open_platform, sealed_rows, signal
from tidemark.coordinator.core import ShardCore
from tidemark.coordinator.reset_clock import reset_clock
from tidemark.counts.warm.follower import Follower
from tidemark.counts.windows import Window
from tidemark.log.manifest import Manifest
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import ClockLeapError, ShardBusyError
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US, to_us
from tidemark.observe.sealed_log import Log, source_watermarks
from tidemark.observe.status import read_status
from tidemark.shard_state.clock_reset import read_resets
from tidemark.shard_state.recovery import ShardFiles
from tidemark.storage.home import Home
from tidemark.tables.table_watermarks import TableWatermark, TableWatermarkFile

YEAR_US = 365 * DAY_US
AHEAD = TEN_O_CLOCK + YEAR_US
STREAM = "shop/signal"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two shards; one honest write, then a process that started a year ahead wrote to one of them, with such events."""
    home = new_home(tmp_path / "home", "shards = 2\n")
    with open_platform(home) as platform:
        platform.producer("web").write([signal(f"honest {number}", entity=f"e{number}") for number in range(20)]).wait()
    with open_platform(home, HandClock(AHEAD)) as platform:
        platform.producer("web").write([signal("wrong", at=AHEAD, entity="e1")]).wait()
        platform.producer("web").write([signal("wrong too", at=AHEAD, entity="e1")]).wait()
    return home


def reset(home: Home, now_us: int) -> HandClock:
    clock = HandClock(now_us)
    reset_clock(home, clock=clock)
    return clock


def test_before_a_reset_the_right_clock_is_refused_and_a_restart_heals_nothing(home: Home) -> None:
    for _ in range(2):
        clock = HandClock(TEN_O_CLOCK + HOUR_US)
        with open_platform(home, clock) as platform, pytest.raises(ClockLeapError, match=r"\./tidemark clock"):
            platform.producer("web").try_write([signal("x", entity="e1")])


def test_after_a_reset_writes_are_received_now_and_honest_rows_are_not_late(home: Home) -> None:
    clock = reset(home, TEN_O_CLOCK + HOUR_US)
    assert all(
        each <= clock.now_us - 5 * SECOND_US for shard in read_status(home) for each in shard.watermarks.values()
    )
    with open_platform(home, clock) as platform:
        producer = platform.producer("web")
        for number in range(3):
            clock.advance(10)
            sent = [signal(f"after {number} {each}", at=clock.now_us, entity=f"e{each}") for each in range(20)]
            assert producer.write(sent).wait().accepted == 20
        future = producer.write([signal("future", at=AHEAD, entity="e1")]).wait()
        assert future.refused == 1
    rows = [row for shard in range(2) for row in sealed_rows(home, shard) if row["delta_id"].startswith("after")]
    for row in rows:
        assert TEN_O_CLOCK + HOUR_US < to_us(row["received_ts"]) <= clock.now_us
        assert to_us(row["watermark_ts"]) <= to_us(row["event_ts"])  # not late


def test_idleness_and_sealing_by_age_work_after_a_reset(home: Home) -> None:
    clock = reset(home, TEN_O_CLOCK + HOUR_US)
    with open_platform(home, clock) as platform:
        platform.producer("web").write([signal("one", at=clock.now_us, entity="e1")]).wait()
        shard = max(platform.shards.values(), key=lambda shard: shard.applied_epoch)
        assert shard.event_time().active <= {STREAM}
        clock.advance(20 * 60)
        look(shard)
        shard.open_producer("other")  # returns behind a flush, at which the age is looked at
        shard._sealing.wait()
        assert shard.core.sealed_epoch == shard.applied_epoch
    *_, entry = Manifest(home.segments(shard.number)).all()
    assert entry.sealed_us <= clock.now_us
    assert entry.received_us == TEN_O_CLOCK + HOUR_US


def test_sources_go_by_the_reset_also_in_a_shard_that_was_not_written_to_since(home: Home) -> None:
    last = {entry.shard: entry for shard in range(2) for entry in Manifest(home.segments(shard)).all()}
    assert max(entry.received_us for entry in last.values()) >= AHEAD
    clock = reset(home, TEN_O_CLOCK + HOUR_US)
    mark = source_watermarks(last.values(), read_resets(home))[STREAM]
    assert mark.time_us <= clock.now_us
    assert mark.idle_from_us is not None
    assert mark.idle_from_us <= clock.now_us + HOUR_US
    upto = {shard: entry.to_epoch for shard, entry in last.items()}
    assert Log(home).sources(upto)[STREAM] == mark
    wrong = max(last.values(), key=lambda entry: entry.received_us)
    with open_platform(home, clock) as platform:
        clock.advance(60)
        sent = [signal(f"more {each}", at=clock.now_us, entity=f"e{each}") for each in range(20)]
        platform.producer("web").write(sent).wait()
    *_, fresh = Manifest(home.segments(wrong.shard)).all()
    assert fresh.number > wrong.number
    assert source_watermarks([fresh], read_resets(home))[STREAM].time_us == fresh.watermarks[STREAM] < clock.now_us


def test_segments_are_drained_in_their_order_when_the_clock_went_back(home: Home) -> None:
    clock = reset(home, TEN_O_CLOCK + HOUR_US)
    with open_platform(home, clock) as platform:
        sent = [signal(f"more {each}", at=clock.now_us, entity=f"e{each}") for each in range(20)]
        platform.producer("web").write(sent).wait()
    entries = [entry for shard in range(2) for entry in Manifest(home.segments(shard)).all()]
    assert any(one.sealed_us > other.sealed_us for one, other in pairwise(entries))
    found = list(Log(home).by_age({}))
    assert sorted(found, key=lambda entry: (entry.shard, entry.number)) == entries
    for shard in range(2):
        numbers = [entry.number for entry in found if entry.shard == shard]
        assert numbers == sorted(numbers)


def test_the_warm_tier_answers_after_a_reset(home: Home) -> None:
    clock = HandClock(AHEAD)
    with open_platform(home, clock) as platform:
        Follower(platform, home, clock=clock, capacity=1 << 10, look_seconds=3600).close()  # leaves a snapshot
    clock = reset(home, TEN_O_CLOCK + 10 * MINUTE_US)
    with (
        open_platform(home, clock) as platform,
        Follower(platform, home, capacity=1 << 10, look_seconds=3600) as follower,
    ):
        assert follower.counters.count("shop", "e2", "view", Window.HOUR) == 1


def test_a_reset_needs_the_home_for_itself(home: Home) -> None:
    with open_platform(home, HandClock(AHEAD)), pytest.raises(ShardBusyError):
        reset(home, TEN_O_CLOCK)
    assert read_resets(home) == []


def test_a_reset_of_a_log_that_is_right_takes_nothing_back(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    clock = HandClock()
    with open_platform(home, clock) as platform:
        producer = platform.producer("web")
        for number in range(5):
            clock.advance(1)
            producer.write([signal(str(number), at=clock.now_us)]).wait()
    before = read_status(home)[0].watermarks
    clock.advance(60)
    reset(home, clock.now_us)
    assert read_status(home)[0].watermarks == before
    reset(home, clock.now_us)  # again, as after a crash: the same
    assert read_status(home)[0].watermarks == before


# Recorded watermarks: a reset takes back what was promised about the future, and nothing else does.


def record(watermark_us: int | None) -> Record:
    fields: dict[str, Any] = {
        "asset": "deltas",
        "partition": None,
        "generation": 0,
        "table_version": 0,
        "table_id": "t",
    }
    return Record(**fields, watermark_us=watermark_us, held_by="a shard")


def test_a_recorded_watermark_never_falls_but_by_a_reset() -> None:
    now = TEN_O_CLOCK
    assert not_below(now - 2, "b", record(now - 1), None) == (now - 1, "a shard")
    assert not_below(now - 2, "b", record(AHEAD), None) == (AHEAD, "a shard")
    assert not_below(now - 2, "b", record(AHEAD), now) == (now - 2, "b")
    assert not_below(now - 2, "b", record(now - 1), now) == (now - 1, "a shard")
    assert believed(record(None), now) is None


def test_marks_of_tables_fall_to_the_reset(home: Home) -> None:
    file = TableWatermarkFile(home.plans, "deltas")
    file.advance([TableWatermark(AHEAD, "a shard", TEN_O_CLOCK)])
    other = TableWatermarkFile(home.plans, "minute_counts")
    other.advance([TableWatermark(TEN_O_CLOCK - 1, "a shard", TEN_O_CLOCK)])
    clock = reset(home, TEN_O_CLOCK + HOUR_US)
    assert file.read() == TableWatermark(clock.now_us, "a shard", TEN_O_CLOCK)
    assert other.read() == TableWatermark(TEN_O_CLOCK - 1, "a shard", TEN_O_CLOCK)


# Recovery.

FILES = ShardFiles(0, Path("/home/log"), Path("/home/segments"))


def core_on(disk: Any, now_us: int, *resets: int) -> ShardCore:
    # Small files: what is set aside for each is written, and every disk here is copied many times.
    settings = Settings(segment_bytes=4_096)
    return ShardCore(FILES, settings, lambda: now_us, disk, StepSealing(), resets=resets)


def send(core: ShardCore, *ids: str, at: int) -> None:
    instance, mark = core.open_producer("p")
    for number, delta_id in enumerate(ids, start=mark + 1):
        core.submit("p", instance, number, [signal(delta_id, at=at)], size=100)
        group = core.take()
        core.publish(group, core.persist(group))


def memory(core: ShardCore) -> tuple[Any, ...]:
    arrivals = core.flusher._arrivals
    return arrivals.watermarks.snapshot(), core.flusher._last_received_us, core._buffer._last_received_us


@pytest.mark.parametrize("survival", [Survival.NOTHING, Survival.EVERYTHING, Survival.CACHE, Survival.RANDOM])
def test_a_reset_is_whole_after_a_crash_at_any_call_and_no_write_is_lost_or_doubled(survival: Survival) -> None:
    disk = SimulatedDisk()
    send(core_on(disk, AHEAD), "a", "b", at=AHEAD)
    disk = disk.crash(Survival.NOTHING, Random(0))
    before = memory(core_on(copy_of(disk), AHEAD))
    after = memory(core_on(copy_of(disk), TEN_O_CLOCK, TEN_O_CLOCK))
    assert before != after
    outcomes = set()
    for call in range(1, 200):
        disk_now, is_told = copy_of(disk), False
        busy = BusyDisk(disk_now, [], Cut(EVERY_KIND, call, Moment.AFTER), lambda: None)
        try:
            send(core_on(busy, TEN_O_CLOCK, TEN_O_CLOCK), "c", at=TEN_O_CLOCK)
            is_told = True
        except PowerCut:
            pass
        left = disk_now.crash(survival, Random(call))
        # What lies there is the log as it was, or the reset and all that it changes.
        found = memory(core_on(copy_of(left), AHEAD))
        outcomes.add(is_reset := found[1] != before[1])
        ids = stored(core_on(copy_of(left), AHEAD))
        assert ids[:2] == ["a", "b"]
        if len(ids) == 2:
            assert found == (after if is_reset else before)
        # Whatever was cut, the next life finishes it.
        core = core_on(copy_of(left), TEN_O_CLOCK, TEN_O_CLOCK)
        if len(ids) == 2:
            assert memory(core) == after
        if "c" not in ids:
            assert not is_told
            send(core, "c", at=TEN_O_CLOCK)
        assert stored(core) == ["a", "b", "c"]
        assert to_us(core.engine.snapshot.read()["received_ts"][-1].as_py()) == TEN_O_CLOCK
        if is_told:
            break
    assert is_told
    assert outcomes == {True, False}


def test_a_reset_is_logged_once_and_a_later_one_takes_effect_again() -> None:
    disk, later = SimulatedDisk(), TEN_O_CLOCK + DAY_US
    send(core_on(disk, AHEAD), "a", at=AHEAD)
    for _ in range(2):
        disk = disk.crash(Survival.NOTHING, Random(0))
        core = core_on(disk, TEN_O_CLOCK, TEN_O_CLOCK)
        assert memory(core)[1] == TEN_O_CLOCK
    send(core, "b", at=TEN_O_CLOCK)
    disk = disk.crash(Survival.NOTHING, Random(0))
    send(core_on(disk, AHEAD, TEN_O_CLOCK), "c", at=AHEAD)
    disk = disk.crash(Survival.NOTHING, Random(0))
    assert memory(core_on(copy_of(disk), AHEAD, TEN_O_CLOCK))[1] == AHEAD
    core = core_on(copy_of(disk), later, TEN_O_CLOCK, later)
    assert memory(core)[1] == later
    assert stored(core) == ["a", "b", "c"]


def test_a_shard_that_missed_a_reset_makes_up_for_it_with_the_next() -> None:
    disk, later = SimulatedDisk(), TEN_O_CLOCK + DAY_US
    send(core_on(disk, AHEAD), "a", at=AHEAD)
    core = core_on(disk.crash(Survival.NOTHING, Random(0)), later, TEN_O_CLOCK, later)
    assert memory(core)[1] == TEN_O_CLOCK
    assert core.flusher._arrivals.watermarks.resets == 2


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    """Another one with all that it holds; the first is off from then on, and can be copied again."""
    return disk.crash(Survival.EVERYTHING, Random(0))


def stored(core: ShardCore) -> list[str]:
    found: list[str] = core.engine.snapshot.read()["delta_id"].to_pylist()
    return found
