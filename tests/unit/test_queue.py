"""The line in front of a full buffer: priorities between producers, ageing, and order within one (Q1)."""

from hypothesis import given
from hypothesis import strategies as st

from tidemark.coordinator.queue import HEAD_START_US, FairQueue
from tidemark.model.deltas import Priority
from tidemark.model.timegrid import SECOND_US

ARRIVALS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(list(Priority)), st.integers(0, 5 * SECOND_US)), max_size=30
)


def test_the_more_urgent_of_two_that_came_together_goes_first_q1() -> None:
    line: FairQueue[str] = FairQueue()
    for priority in reversed(Priority):
        line.push(f"producer-{priority}", priority, 0, priority)
    assert [line.pop() for _ in range(4)] == ["critical", "high", "normal", "low"]


def test_a_low_write_that_waited_long_enough_goes_before_a_fresh_critical_one_q1() -> None:
    line: FairQueue[str] = FairQueue()
    line.push("a", Priority.LOW, 0, "old and low")
    line.push("b", Priority.CRITICAL, 3 * SECOND_US + 1, "fresh and critical")
    assert line.pop() == "old and low"


def test_however_many_critical_ones_come_a_low_one_is_taken_after_its_handicap_q1() -> None:
    line: FairQueue[str] = FairQueue()
    line.push("patient", Priority.LOW, 0, "low")
    taken = []
    for moment in range(0, 10 * SECOND_US, SECOND_US // 10):
        line.push("pushy", Priority.CRITICAL, moment, "critical")
        taken.append(line.pop())
    assert taken.index("low") == 30, "three seconds of head start, ten writes a second"


@given(ARRIVALS)
def test_one_producers_writes_never_change_places_q1(arrivals: list[tuple[str, Priority, int]]) -> None:
    line: FairQueue[tuple[str, int]] = FairQueue()
    for number, (producer, priority, moment) in enumerate(sorted(arrivals, key=lambda arrival: arrival[2])):
        line.push(producer, priority, moment, (producer, number))
    taken = line.clear()
    for producer in "abc":
        mine = [number for name, number in taken if name == producer]
        assert mine == sorted(mine)
    assert len(taken) == len(arrivals)
    assert len(line) == 0


@given(ARRIVALS)
def test_nobody_is_overtaken_by_one_that_came_later_than_the_largest_head_start_q1(
    arrivals: list[tuple[str, Priority, int]],
) -> None:
    line: FairQueue[int] = FairQueue()
    for number, (_, priority, moment) in enumerate(sorted(arrivals, key=lambda arrival: arrival[2])):
        line.push(str(number), priority, moment, moment)
    taken = line.clear()
    latest = 0
    for moment in taken:
        assert moment >= latest - max(HEAD_START_US.values())
        latest = max(latest, moment)


def test_who_is_first_stays_until_it_is_taken() -> None:
    line: FairQueue[str] = FairQueue()
    line.push("a", Priority.NORMAL, 0, "first")
    line.push("b", Priority.NORMAL, 1, "second")
    assert line.first() == "first"
    assert line.pop() == "first"
    assert line.first() == "second"
