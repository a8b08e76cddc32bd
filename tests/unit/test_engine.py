"""The engine on its smallest kind of write, keys and values in memory (C1, C2, C3, C4, C6, C8, C11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.keyed import KeyedBuffer, KeyedCoordinator, KeyedFlusher, Pairs
from tidemark.coordinator.bounds import Place, Tracker
from tidemark.coordinator.engine import Engine, State
from tidemark.coordinator.epochs import RESERVED_AHEAD, Epochs
from tidemark.model.deltas import Priority
from tidemark.model.settings import BoundSettings
from tidemark.model.shard_errors import BackpressureError, OutcomeUnknownError, ShardStoppedError, WriteTooLargeError

SMALL = BoundSettings(deltas=10, bytes=4_096)


def small_engine(group_bytes: int = 10, states: list[State] | None = None) -> Engine[Pairs, Pairs, Pairs]:
    return Engine(
        KeyedBuffer(),
        {},
        Epochs(),
        Tracker(SMALL),
        name=0,
        group_bytes=group_bytes,
        on_state=states.append if states is not None else lambda state: None,
    )


def put(engine: Engine[Pairs, Pairs, Pairs], size: int = 10, **options: object) -> object:
    settings: dict[str, object] = {"size": size, "deltas": 1, "producer": "a", "now_us": 0, **options}
    return engine.submit({"k": "v"}, **settings)  # type: ignore[arg-type]


def test_the_same_engine_serves_a_kind_of_write_that_knows_no_deltas_c1() -> None:
    coordinator = KeyedCoordinator()
    assert [coordinator.write({"a": str(number)}).epoch for number in range(3)] == [1, 2, 3]
    assert coordinator.get("a") is None
    assert coordinator.get_own("a") == "2"
    assert coordinator.flush() == 3
    assert coordinator.get("a") == coordinator.get_own("a") == "2"


@given(
    st.lists(st.tuples(st.sampled_from(["write", "flush", "own"]), st.sampled_from("xyz"), st.text("01", max_size=2)))
)
def test_the_last_write_wins_whatever_is_flushed_or_looked_at_in_between_c1(steps: list[tuple[str, str, str]]) -> None:
    coordinator, model, flushed = KeyedCoordinator(), dict[str, str](), dict[str, str]()
    for step, key, value in steps:
        if step == "write":
            coordinator.write({key: value})
            model[key] = value
        elif step == "flush":
            coordinator.flush()
            flushed = dict(model)
        assert coordinator.get_own(key) == model.get(key)
        assert coordinator.get(key) == flushed.get(key)
        assert coordinator.engine.applied_epoch >= coordinator.engine.flushed_epoch


def test_states_follow_each_other_and_each_is_shown_c4() -> None:
    states: list[State] = []
    engine, flusher = small_engine(states=states), KeyedFlusher()
    put(engine)
    group = engine.take()
    put(engine)  # writes go on during a flush
    engine.publish(group, flusher.persist(group.frozen))
    group = engine.take()
    engine.publish(group, flusher.persist(group.frozen))
    engine.fail(OSError("no disk"))
    accumulating, flushing = State.ACCUMULATING, State.FLUSHING
    assert states == [accumulating, flushing, accumulating, flushing, State.IDLE, State.FAILED]


def test_a_reader_sees_the_new_snapshot_before_the_watermark_says_so_c6() -> None:
    seen: list[tuple[Pairs, int]] = []

    class Watched(Engine[Pairs, Pairs, Pairs]):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "flushed_epoch" and value:
                seen.append((self.snapshot, self.flushed_epoch))

    engine = Watched(KeyedBuffer(), {}, Epochs(), Tracker(SMALL), name=0, group_bytes=10)
    put(engine)
    group = engine.take()
    engine.publish(group, {"k": "v"})
    assert seen == [({"k": "v"}, 1)]


def test_a_view_has_every_epoch_once_and_none_by_half_c11() -> None:
    engine = small_engine(group_bytes=100)
    for number in range(3):
        engine.submit({str(number): "v"}, size=10, deltas=1, producer="a", now_us=0)
        if number == 0:
            in_flight = engine.take()
        view = engine.view()
        assert sorted(key for part in (view.snapshot, *view.frozen) for key in part) == [
            str(earlier) for earlier in range(number + 1)
        ]
        assert view.epoch == number + 1
    engine.publish(in_flight, {"0": "v"})
    view = engine.view()
    assert [list(part) for part in (view.snapshot, *view.frozen)] == [["0"], ["1"], ["2"]]


def test_a_failure_gives_every_unflushed_write_back_and_the_watermark_stays_before_the_hole_c3() -> None:
    engine = small_engine()
    tickets = [put(engine)]
    engine.publish(engine.take(), {"k": "v"})
    tickets += [put(engine)]
    engine.take()
    tickets += [put(engine), put(engine)]  # one in the buffer, one in line
    assert engine.queued == 1
    engine.fail(OSError("the disk is gone"))
    errors = [type(ticket.error) for ticket in tickets]  # type: ignore[attr-defined]
    assert errors == [type(None), OutcomeUnknownError, ShardStoppedError, ShardStoppedError]
    assert all(ticket.error.write == {"k": "v"} for ticket in tickets[1:])  # type: ignore[attr-defined]
    assert engine.flushed_epoch == 1
    assert engine.tracker.total_bytes == engine.tracker.deltas == 0
    with pytest.raises(ShardStoppedError, match="Start it again") as refused:
        put(engine)
    assert refused.value.write == {"k": "v"}


def test_what_stands_in_line_is_applied_by_priority_once_there_is_room_q1() -> None:
    engine, flusher = small_engine(), KeyedFlusher()
    first = put(engine)
    low = put(engine, producer="l", priority=Priority.LOW)
    critical = put(engine, producer="c", priority=Priority.CRITICAL)
    while engine.has_writes:
        group = engine.take()
        engine.publish(group, flusher.persist(group.frozen))
    epochs = [ticket.epoch for ticket in (first, critical, low)]  # type: ignore[attr-defined]
    assert epochs == [1, 2, 3]


def test_over_the_bound_a_write_is_given_back_and_later_taken_c8() -> None:
    engine, flusher = small_engine(), KeyedFlusher()
    put(engine, size=3_000)
    with pytest.raises(BackpressureError, match="bytes wait") as refused:
        put(engine, size=2_000)
    assert refused.value.write == {"k": "v"}
    assert refused.value.retry_after_s > 0
    group = engine.take()
    with pytest.raises(BackpressureError):
        put(engine, size=2_000)
    engine.publish(group, flusher.persist(group.frozen))
    put(engine, size=2_000)


def test_the_number_of_deltas_that_wait_is_bounded_too_c8() -> None:
    engine = small_engine()
    put(engine, deltas=10)
    with pytest.raises(BackpressureError, match="10 deltas wait"):
        put(engine, deltas=1)


def test_from_the_emergency_mark_on_nothing_is_taken_even_if_it_would_fit_c8() -> None:
    engine = small_engine()
    put(engine, size=3_900)
    with pytest.raises(BackpressureError):
        put(engine, size=1)


def test_a_write_that_could_never_fit_is_too_large_c8() -> None:
    with pytest.raises(WriteTooLargeError, match="4,097 bytes; 4,096 fit"):
        put(small_engine(), size=4_097)
    with pytest.raises(WriteTooLargeError, match="11 deltas; 10 fit"):
        put(small_engine(), deltas=11)


@given(st.lists(st.integers(1, 900), max_size=40), st.integers(1, 3))
def test_after_all_work_is_done_the_tracker_reads_zero_c8(sizes: list[int], every: int) -> None:
    engine, flusher = small_engine(group_bytes=1_000), KeyedFlusher()
    for number, size in enumerate(sizes):
        try:
            put(engine, size=size, producer=str(number % 4))
        except BackpressureError:
            assert engine.tracker.total_bytes > 0
        held = engine.tracker.bytes
        assert all(amount >= 0 for amount in held.values())
        if number % every == 0 and engine.has_writes:
            group = engine.take()
            engine.publish(group, flusher.persist(group.frozen))
    while engine.has_writes:
        group = engine.take()
        engine.publish(group, flusher.persist(group.frozen))
    assert engine.tracker.bytes == dict.fromkeys(Place, 0)
    assert engine.tracker.deltas == 0
    assert engine.flushed_epoch == engine.applied_epoch


def test_an_epoch_is_reserved_before_anybody_sees_it_c7() -> None:
    reserved: list[int] = []
    epochs = Epochs(1, reserved.append)
    for expected in range(1, RESERVED_AHEAD + 3):
        assert epochs.take() == expected
        assert reserved[-1] > expected
    assert reserved == [RESERVED_AHEAD + 1, 2 * RESERVED_AHEAD + 1]


def test_an_epoch_whose_reservation_failed_is_not_given_out_c7() -> None:
    def refuse(to_epoch: int) -> None:
        raise OSError(28, "No space left on device", to_epoch)

    epochs = Epochs(1, refuse)
    with pytest.raises(OSError, match="No space"):
        epochs.take()
    assert epochs.last == 0
