"""What was turned away before it was numbered is in the log, in the manifest and in the account: exactly, or the
account names the time in which nobody could count (A3).
"""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.disks import CallKind, Fault, FaultyDisk, PowerCut, SimulatedDisk, Survival
from chaos.watching import StepSealing
from tests.support.live import TEN_O_CLOCK, signal
from tidemark.admission.arriving import Turned
from tidemark.admission.counting import MOST_COUNTED, Counting
from tidemark.coordinator.core import ShardCore
from tidemark.log.control import TurnedAway
from tidemark.log.manifest import Manifest
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import ShardStoppedError
from tidemark.model.timegrid import MINUTE_US, SECOND_US
from tidemark.model.turned_away import MOST_IDS, MOST_PRODUCERS, MOST_UNKNOWN, Tally
from tidemark.observe.turned_away import read_books
from tidemark.shard_state.recovery import ShardFiles

# The value that is counted.


def test_a3_sums_stay_exact_when_names_and_ids_are_not_kept() -> None:
    counting = Counting()
    for number in range(MOST_COUNTED + 50):
        counting.add(Turned.RATE, f"p{number}", 1 + number % 7, [f"d{number}"])
    counting.add(Turned.RATE, "p3", 1_000_000, ["x" * 1_000])
    sent = sum(1 + number % 7 for number in range(MOST_COUNTED + 50)) + 1_000_000
    tally = counting.take(MOST_PRODUCERS)
    assert tally.deltas == sent
    assert len(tally.counts["rate"]) == MOST_PRODUCERS + 1
    assert tally.counts["rate"]["p3"] == 1_000_004
    assert [len(each) for each in tally.ids["rate"]] == [6] * (MOST_IDS - 1) + [256]
    assert not counting.take(MOST_PRODUCERS)


COUNTS = st.dictionaries(
    st.sampled_from(["rate", "lag", "shed"]),
    st.dictionaries(st.text("abcdef", max_size=2), st.integers(1, 9), min_size=1),
)


@given(st.lists(COUNTS, max_size=8), st.integers(1, 5))
def test_a3_adding_up_loses_nothing_whatever_is_kept_by_name(
    all_counts: list[dict[str, dict[str, int]]], most: int
) -> None:
    total = Tally()
    for counts in all_counts:
        total = total.plus(Tally(counts), most)
    expected: dict[str, int] = {}
    for counts in all_counts:
        for reason, producers in counts.items():
            expected[reason] = expected.get(reason, 0) + sum(producers.values())
    assert total.reasons == expected
    assert all(len(producers) <= most + 1 for producers in total.counts.values())


def test_a3_unknown_times_are_bounded_and_what_is_joined_covers_them_all() -> None:
    total = Tally()
    for number in range(2 * MOST_UNKNOWN):
        total = total.plus(Tally(unknown=[(10 * number, 10 * number + 5)]))
    assert len(total.unknown) == MOST_UNKNOWN
    assert total.unknown[0] == (0, 10 * MOST_UNKNOWN + 5)
    assert total.unknown[-1] == (20 * MOST_UNKNOWN - 10, 20 * MOST_UNKNOWN - 5)


# One shard, step by step.

FILES = ShardFiles(0, Path("/home/log"), Path("/home/segments"))
SMALL = Settings(segment_bytes=4_096, recent_identities=4)


class Steps:
    """A shard with a clock that is set by hand, and a door in front of it that counts."""

    def __init__(self, disk: SimulatedDisk | FaultyDisk, now_us: int = TEN_O_CLOCK) -> None:
        self.disk, self.now_us = disk, now_us
        self.sealing = StepSealing()
        self.core = ShardCore(FILES, SMALL, lambda: self.now_us, disk, self.sealing)
        self.instance, self.sequence = self.core.open_producer("p")
        self.told_us = now_us

    def open_door(self) -> None:
        self.told_us = self.now_us
        self.core.turn_away(TurnedAway(Tally(), self.now_us, self.now_us), is_urgent=True)
        assert self.core.has_work()
        self.flush()

    def turn_away(self, deltas: int, *, is_last: bool = False) -> None:
        tally = Tally({"rate": {"web": deltas}} if deltas else {})
        self.core.turn_away(TurnedAway(tally, self.told_us, self.now_us, is_last))
        self.told_us = self.now_us

    def send(self) -> None:
        self.sequence += 1
        self.core.submit("p", self.instance, self.sequence, [signal(f"d{self.sequence}")], size=100)

    def flush(self) -> None:
        group = self.core.take()
        self.core.publish(group, self.core.persist(group))

    def books(self) -> tuple[int, list[tuple[int, int]]]:
        found = read_books(self.disk, FILES.log, FILES.segments)
        return found.tally.deltas, list(found.tally.unknown)


def test_a3_counts_ride_in_the_next_frame() -> None:
    steps = Steps(SimulatedDisk())
    steps.open_door()
    steps.turn_away(7)
    steps.turn_away(5)
    assert steps.books() == (0, [])
    assert not steps.core.has_work(), "nothing is written for it alone"
    steps.send()
    steps.flush()
    assert steps.books() == (12, [])


def test_a3_counts_are_logged_after_a_minute_at_the_latest() -> None:
    steps = Steps(SimulatedDisk())
    steps.open_door()
    steps.turn_away(7)
    due_us = steps.now_us + MINUTE_US
    assert steps.core.next_look_us() == due_us
    steps.now_us = due_us - 1
    steps.turn_away(5)
    assert not steps.core.has_work()
    steps.now_us = due_us
    assert steps.core.has_work()
    steps.flush()
    assert steps.books() == (12, [])
    assert not steps.core.has_work()


def test_a3_a_door_that_closes_in_good_order_leaves_nothing_unknown() -> None:
    disk = SimulatedDisk()
    steps = Steps(disk)
    steps.open_door()
    steps.turn_away(7)
    steps.turn_away(3, is_last=True)
    steps.core.stop()
    steps.core.close()
    again = Steps(disk, TEN_O_CLOCK + SECOND_US)
    again.flush()
    assert again.books() == (10, [])


def test_a3_a_shutdown_without_the_doors_last_word_leaves_an_unknown_time() -> None:
    """What it counted after its last note went with it, however orderly the shard was closed."""
    disk = SimulatedDisk()
    steps = Steps(disk)
    steps.open_door()
    steps.now_us += SECOND_US
    steps.turn_away(7)
    steps.core.stop()
    steps.core.close()
    again = Steps(disk, TEN_O_CLOCK + MINUTE_US)
    again.flush()
    assert again.books() == (7, [(TEN_O_CLOCK + SECOND_US, TEN_O_CLOCK + MINUTE_US)])
    for _ in range(2):  # named once, and not again
        again.core.stop()
        again.core.close()
        again = Steps(disk, again.now_us + MINUTE_US)
        assert again.books() == (7, [(TEN_O_CLOCK + SECOND_US, TEN_O_CLOCK + MINUTE_US)])


def test_a3_a_home_that_never_had_a_door_is_not_bothered() -> None:
    disk = SimulatedDisk()
    for life in range(3):
        steps = Steps(disk.crash(Survival.EVERYTHING, Random(0)) if life else disk, TEN_O_CLOCK + life * MINUTE_US)
        disk = steps.disk  # type: ignore[assignment]
        steps.send()
        steps.flush()
        assert steps.books() == (0, [])
        content = [message for part in [steps.core.view()] for message in part.frozen]
        assert content == []


def test_a3_sealing_takes_the_counts_into_the_line_and_the_totals_once() -> None:
    steps = Steps(SimulatedDisk())
    steps.open_door()
    for number in range(3):
        steps.turn_away(10 + number)
        steps.send()
        steps.core.ask_seal()
        steps.flush()
        steps.turn_away(100)
        steps.flush()  # in a file that has no write yet
        steps.sealing.wait()
        assert steps.books() == (sum(10 + n + 100 for n in range(number + 1)), [])
    lines = list(Manifest(FILES.segments, steps.disk).all())
    assert [entry.turned_away.deltas for entry in lines] == [10, 111, 112]
    assert [entry.totals.turned_away.deltas for entry in lines if entry.totals] == [10, 121, 233]


def test_a3_a_log_file_without_writes_becomes_no_segment_and_its_counts_stay() -> None:
    disk = SimulatedDisk()
    total = 0
    for life in range(4):
        steps = Steps(disk, TEN_O_CLOCK + life * MINUTE_US)
        steps.open_door()
        steps.turn_away(5, is_last=True)
        total += 5
        steps.core.stop()
        steps.core.close()
        assert steps.books() == (total, [])
        assert Manifest(FILES.segments, disk).count == 0
    steps = Steps(disk, TEN_O_CLOCK + 5 * MINUTE_US)
    steps.send()
    steps.core.stop()
    steps.flush()
    steps.core.close()
    last = Manifest(FILES.segments, disk).last
    assert last is not None
    assert last.turned_away.deltas == total
    assert steps.books() == (total, [])


def test_a3_on_a_disk_that_is_full_the_rest_is_named_as_unknown() -> None:
    disk = SimulatedDisk()
    faulty = FaultyDisk(disk)
    steps = Steps(faulty)
    steps.open_door()
    steps.turn_away(5)
    steps.now_us += SECOND_US
    steps.flush()
    steps.turn_away(7)
    faulty.fail(Fault(frozenset({CallKind.PWRITE}), nth=1))
    group = steps.core.take()
    with pytest.raises(OSError, match="Input/output error"):
        steps.core.persist(group)
    steps.core.fail(OSError("No space left on device"))
    with pytest.raises(ShardStoppedError):
        steps.turn_away(9)
    again = Steps(disk, TEN_O_CLOCK + MINUTE_US)
    again.flush()
    assert again.books() == (5, [(TEN_O_CLOCK, TEN_O_CLOCK + MINUTE_US)])


def test_a3_a_shard_that_refuses_writes_for_want_of_space_still_logs_what_was_turned_away() -> None:
    faulty = FaultyDisk(SimulatedDisk())
    steps = Steps(faulty)
    steps.open_door()
    faulty.set_free_bytes(1_000)
    steps.flush()
    assert steps.core.flusher.gauge.is_low
    steps.turn_away(9)
    steps.now_us += MINUTE_US
    assert steps.core.has_work()
    steps.flush()
    assert steps.books() == (9, [])


class World:
    """A shard with a door, life after life, and somebody outside who counts."""

    def __init__(self) -> None:
        self.life = Steps(SimulatedDisk())
        self.turned: list[tuple[int, int]] = []  # when, and how many
        self.has_door = False

    def door(self, _: object) -> None:
        if not self.has_door:
            self.life.open_door()
            self.has_door = True

    def turn_away(self, deltas: int) -> None:
        if self.has_door:
            self.turned.append((self.life.now_us, deltas))
            self.life.now_us += 1
            self.life.turn_away(deltas)

    def last(self, _: object) -> None:
        if self.has_door:
            self.life.turn_away(0, is_last=True)
            self.has_door = False

    def send(self, _: object) -> None:
        self.life.send()

    def flush(self, _: object) -> None:
        self.life.flush()

    def seal(self, _: object) -> None:
        self.life.core.ask_seal()
        self.life.flush()

    def work(self, _: object) -> None:
        self.life.sealing.step()

    def wait(self, _: object) -> None:
        self.life.now_us += MINUTE_US

    def close(self, _: object) -> None:
        """A clean stop, with the door's last word or without."""
        self.life.core.stop()
        self.life.flush()
        self.life.core.close()
        self.start(self.life.disk)

    def crash(self, how: tuple[int, int, Survival, int]) -> None:
        """The power goes at a call while everything is written and sealed; perhaps again at the next start."""
        at, at_start, survival, seed = how
        disk = self.life.disk
        assert isinstance(disk, SimulatedDisk)
        disk.cut_power(len(disk.trace) + at)
        with suppress(PowerCut):
            self.seal(None)
            self.work(None)
        disk = disk.crash(survival, Random(seed))
        if at_start:
            disk.cut_power(at_start)
            with suppress(PowerCut):
                self.start(disk)
            disk = disk.crash(survival, Random(seed))
        self.start(disk)

    def start(self, disk: SimulatedDisk | FaultyDisk) -> None:
        self.has_door = False
        self.life = Steps(disk, self.life.now_us + 1_000)


CRASHES = st.tuples(
    st.integers(1, 35), st.sampled_from([0, 0, 3, 10, 20]), st.sampled_from(Survival), st.integers(0, 99)
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("turn_away"), st.integers(1, 9)),
        st.tuples(st.sampled_from(["send", "flush", "seal", "work", "wait", "door", "last", "close"]), st.none()),
        st.tuples(st.just("crash"), CRASHES),
    ),
    max_size=25,
)


@settings(max_examples=300)
@given(ACTIONS)
def test_a3_after_any_crash_what_was_turned_away_is_counted_or_its_time_is_named(
    actions: list[tuple[str, object]],
) -> None:
    """And nothing is counted twice: the account never says more than was turned away."""
    world = World()
    for name, detail in [*actions, ("flush", None)]:
        world.life.now_us += 1_000
        getattr(world, name)(detail)
    counted, unknown = world.life.books()
    known = [deltas for at_us, deltas in world.turned if not any(start <= at_us < end for start, end in unknown)]
    assert sum(known) <= counted <= sum(deltas for _, deltas in world.turned)
    has_crashed = any(name in {"crash", "close"} for name, _ in actions)
    assert has_crashed or not unknown
