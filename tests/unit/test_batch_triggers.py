"""When a batch is closed: by named triggers, none of which starves another (C5, C8, C12)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.groups import Row, closed, group, one
from tests.support.live import TEN_O_CLOCK
from tidemark.delivery.batching import Batcher, Pending
from tidemark.log.batch_record import Trigger
from tidemark.model.settings import BatchSettings
from tidemark.model.timegrid import SECOND_US

MS = 1_000


def test_c5_batches_are_numbered_without_gaps_from_where_the_last_life_ended() -> None:
    batcher = Batcher(BatchSettings(), next_number=41)
    numbers = []
    for epoch in range(1, 4):
        batcher.add(one(epoch), 1, TEN_O_CLOCK)
        numbers.append(closed(batcher).number)
        assert batcher.close(Trigger.TIME, TEN_O_CLOCK) is None
    assert numbers == [41, 42, 43]


def test_c5_explicit_is_due_at_the_next_look_and_any_close_answers_it() -> None:
    batcher = Batcher(BatchSettings())
    batcher.add(one(1), 1, TEN_O_CLOCK)
    assert batcher.due(TEN_O_CLOCK) is None
    assert batcher.request() == batcher.request() == 1
    assert batcher.due(TEN_O_CLOCK) is Trigger.EXPLICIT
    batch = closed(batcher, Trigger.SHUTDOWN)
    assert (batch.number, batch.trigger, batch.also) == (1, Trigger.SHUTDOWN, (Trigger.EXPLICIT,))
    batcher.add(one(2), 1, TEN_O_CLOCK)
    assert batcher.due(TEN_O_CLOCK) is None
    # Also one that was asked for after the last look.
    assert batcher.request() == 2
    assert closed(batcher, Trigger.TIME).also == (Trigger.EXPLICIT,)


def test_c5_time_counts_from_the_oldest_pending_flushed_delta() -> None:
    batcher = Batcher(BatchSettings(max_ms=5_000))
    batcher.add(one(1), 1, TEN_O_CLOCK)
    batcher.add(one(2), 1, TEN_O_CLOCK + 4_000 * MS)
    assert batcher.next_look_us() == TEN_O_CLOCK + 5_000 * MS
    assert batcher.due(TEN_O_CLOCK + 5_000 * MS - 1) is None
    assert batcher.due(TEN_O_CLOCK + 5_000 * MS) is Trigger.TIME


def test_c5_a_clock_that_is_set_back_makes_nobody_wait_longer() -> None:
    batcher, earlier = Batcher(BatchSettings()), TEN_O_CLOCK - 3_600 * SECOND_US
    batcher.add(one(1), 1, TEN_O_CLOCK)
    assert batcher.due(earlier) is None
    assert batcher.next_look_us() == earlier + 5_000 * MS
    assert batcher.due(earlier + 5_000 * MS) is Trigger.TIME


def test_c5_count_and_size_close_as_soon_as_they_are_reached() -> None:
    by_count = Batcher(BatchSettings(count=3))
    by_count.add(group((1, [Row()] * 2)), 1, TEN_O_CLOCK)
    assert by_count.due(TEN_O_CLOCK) is None
    by_count.add(one(2), 1, TEN_O_CLOCK)
    assert by_count.due(TEN_O_CLOCK) is Trigger.COUNT
    by_size = Batcher(BatchSettings(bytes=4_096))
    while by_size.due(TEN_O_CLOCK) is None:
        by_size.add(one(by_size.pending_writes + 1), 1, TEN_O_CLOCK)
    assert by_size.due(TEN_O_CLOCK) is Trigger.SIZE
    assert closed(by_size).record.bytes >= 4_096


def test_c5_rate_change_is_measured_against_the_rate_at_which_the_batch_was_opened() -> None:
    # given 100 writes a second for ten seconds, closed now and then
    batcher, now = Batcher(BatchSettings(rate_change=4.0)), TEN_O_CLOCK
    for epoch in range(1_000):
        now += 10 * MS
        batcher.add(one(epoch + 1), 1, now)
        if batcher.due(now):
            closed(batcher, now_us=now)
    closed(batcher, now_us=now)
    batcher.add(one(1_001), 1, now)
    assert batcher.due(now) is None
    # when 1,500 more come at once, the rate over the window, which held 500, is 4 times what it was
    batcher.add(group((1_002, [Row()])), 1_400, now)
    assert batcher.due(now) is None
    batcher.add(group((1_003, [Row()])), 200, now)
    assert batcher.due(now) is Trigger.RATE_CHANGE


def test_c5_a_rate_that_changes_nothing_about_the_limit_closes_nothing() -> None:
    batcher = Batcher(BatchSettings())
    batcher.add(one(1), 1, TEN_O_CLOCK)
    batcher.add(one(2), 90, TEN_O_CLOCK)  # from 0.2 to 18 a second: the limit is 5 s at both
    assert batcher.due(TEN_O_CLOCK) is None


def test_c8_memory_pressure_closes_what_is_pending() -> None:
    batcher = Batcher(BatchSettings())
    batcher.add(one(1), 1, TEN_O_CLOCK)
    assert batcher.due(TEN_O_CLOCK, is_pressed=True) is Trigger.MEMORY_PRESSURE


def test_c5_a_users_predicate_closes_by_what_it_is_shown() -> None:
    seen: list[Pending] = []

    def every_third_write(pending: Pending) -> bool:
        seen.append(pending)
        return pending.writes >= 3

    batcher = Batcher(BatchSettings(), predicate=every_third_write)
    looks = []
    for epoch in (4, 5, 6):
        batcher.add(one(epoch), 1, TEN_O_CLOCK + epoch)
        looks.append(batcher.due(TEN_O_CLOCK + epoch))
    assert looks == [None, None, Trigger.PREDICATE]
    last = seen[-1]
    assert (last.deltas, last.from_epoch, last.to_epoch, last.opened_us, last.age_us) == (3, 4, 7, TEN_O_CLOCK + 4, 2)
    assert last.limits == batcher.limits(TEN_O_CLOCK + 6)


def test_c5_a_predicate_that_raises_closes_nothing_is_asked_no_more_and_its_error_is_shown() -> None:
    calls = []

    def broken(pending: Pending) -> bool:
        calls.append(pending)
        raise ZeroDivisionError("mine")

    batcher = Batcher(BatchSettings(count=2), predicate=broken)
    batcher.add(one(1), 1, TEN_O_CLOCK)
    assert batcher.due(TEN_O_CLOCK) is None
    assert isinstance(batcher.predicate_error, ZeroDivisionError)
    batcher.add(one(2), 1, TEN_O_CLOCK)
    assert batcher.due(TEN_O_CLOCK) is Trigger.COUNT
    assert len(calls) == 1


def test_c12_the_limit_of_an_open_batch_falls_with_a_rising_rate_and_never_grows() -> None:
    batcher = Batcher(BatchSettings(rate_change=1_000.0))
    batcher.add(one(1), 1, TEN_O_CLOCK)
    assert batcher.next_look_us() == TEN_O_CLOCK + 5_000 * MS
    batcher.add(one(2), 499, TEN_O_CLOCK)  # 100 a second over the window
    assert batcher.next_look_us() == TEN_O_CLOCK + 1_000 * MS
    assert batcher.limits(TEN_O_CLOCK + 60 * SECOND_US).limit_us == 5_000 * MS
    assert batcher.due(TEN_O_CLOCK + 60 * SECOND_US) is Trigger.TIME
    assert batcher.next_look_us() == TEN_O_CLOCK + 1_000 * MS


def test_c12_what_deliveries_cost_is_visible_and_lengthens_the_limit() -> None:
    batcher = Batcher(BatchSettings(rate_change=1_000.0))
    batcher.add(one(1), 50_000, TEN_O_CLOCK)
    batch = closed(batcher)
    assert batcher.limits(TEN_O_CLOCK).limit_us == 10 * MS
    batcher.delivered(batch, 0.05)
    limits = batcher.limits(TEN_O_CLOCK)
    assert (limits.limit_us, limits.fixed_seconds, limits.writes_per_second) == (500 * MS, 0.05, 10_000.0)
    batcher.add(one(2), 1, TEN_O_CLOCK)
    assert batcher.next_look_us() == TEN_O_CLOCK + 500 * MS


# None starves another.


@pytest.mark.parametrize("greedy", [trigger for trigger in Trigger if trigger is not Trigger.SHUTDOWN])
@pytest.mark.parametrize("other", list(Trigger))
def test_c5_no_trigger_starves_another(greedy: Trigger, other: Trigger) -> None:
    """While one fires at every look, another that is due is named by that very look, and is first by every second."""
    asked = {greedy, other} - {Trigger.SHUTDOWN}
    batcher = Batcher(
        BatchSettings(
            count=1 if Trigger.COUNT in asked else 100_000,
            bytes=4_096 if Trigger.SIZE in asked else 10**9,
            rate_change=1.0001 if Trigger.RATE_CHANGE in asked else 1_000.0,
        ),
        predicate=(lambda _: True) if Trigger.PREDICATE in asked else None,
    )
    rows = group((1, [Row(key="k" * 100)] * 64))
    now, first = TEN_O_CLOCK, []
    for look in range(1, 41):
        # given steady traffic that makes both due, and nothing else
        batcher.add(rows, 200, now)
        batcher.add(rows, 100, now)
        ticket = batcher.request() if Trigger.EXPLICIT in asked else look
        now += 6 * SECOND_US if Trigger.TIME in asked else 2 * MS
        trigger = batcher.due(now, is_pressed=Trigger.MEMORY_PRESSURE in asked)
        assert trigger is not None
        # when a batch is closed
        batch = closed(batcher, Trigger.SHUTDOWN if other is Trigger.SHUTDOWN else trigger, now)
        # then it names both, answers whoever asked, and leaves nothing behind
        assert {batch.trigger, *batch.also} == {greedy, other}
        assert batch.number == ticket
        assert batcher.pending_writes == 0
        first.append(batch.trigger)
    if other is not Trigger.SHUTDOWN:
        assert all(set(pair) == {greedy, other} for pair in pairwise(first))


def test_c5_if_all_are_due_at_every_look_each_comes_first_within_seven_looks() -> None:
    settings = BatchSettings(count=1, bytes=4_096, rate_change=1.0001)
    batcher, now, first = Batcher(settings, predicate=lambda _: True), TEN_O_CLOCK, []
    for _ in range(70):
        for writes in (200, 100):
            batcher.add(group((1, [Row(key="k" * 100)] * 64)), writes, now)
        batcher.request()
        now += 6 * SECOND_US
        trigger = batcher.due(now, is_pressed=True)
        assert trigger is not None
        first.append(closed(batcher, trigger, now).trigger)
    everyone = set(Trigger) - {Trigger.SHUTDOWN}
    assert all(set(first[at : at + 7]) == everyone for at in range(63))


def test_c5_time_never_waits_for_count_nor_for_anything_else() -> None:
    # given a trickle that never reaches any other bound, and a look only when the batcher says so
    batcher, now, waited = Batcher(BatchSettings()), TEN_O_CLOCK, []
    for epoch in range(1, 200):
        now += 70 * MS
        while (look := batcher.next_look_us()) is not None and look <= now:
            assert batcher.due(look) is Trigger.TIME
            batch = closed(batcher, Trigger.TIME, look)
            waited.append(batch.closed_us - batch.opened_us)
        batcher.add(one(epoch), 1, now)
    assert waited
    assert max(waited) <= 5_000 * MS


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300), st.booleans(), st.booleans()), max_size=40))
def test_c5_whatever_the_traffic_every_delta_is_in_one_batch_and_none_waits_beyond_its_limit(
    traffic: list[tuple[int, int, bool, bool]],
) -> None:
    batcher, now, epoch, batches = Batcher(BatchSettings(count=500, max_ms=700)), TEN_O_CLOCK, 0, []
    for pause_ms, writes, is_pressed, is_asked in traffic:
        until = now + pause_ms * MS
        while (look := batcher.next_look_us()) is not None and look <= until:
            trigger = batcher.due(look)
            assert trigger is not None
            batches.append(closed(batcher, trigger, look))
        now = until
        batcher.add(group(*((epoch + at, [Row()]) for at in range(1, writes + 1))), writes, now)
        epoch += writes
        ticket = batcher.request() if is_asked else None
        if trigger := batcher.due(now, is_pressed=is_pressed):
            batches.append(closed(batcher, trigger, now))
        assert ticket is None or batches[-1].number == ticket
        assert batcher.pending_deltas < 500
    if last := batcher.close(Trigger.SHUTDOWN, now):
        batches.append(last)
    ranges = [(batch.from_epoch, batch.to_epoch) for batch in batches]
    assert [begin for begin, _ in ranges] == [1, *(end for _, end in ranges)][: len(ranges)]
    assert sum(batch.record.deltas for batch in batches) == epoch
    assert all(batch.closed_us - batch.opened_us <= 700 * MS for batch in batches)
