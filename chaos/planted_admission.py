"""Planted bugs of admission: at the gate, and in the log of what it turned away.

Belongs here: the patches. Each has the test that must find it.
"""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from chaos.beside import Beside
from tidemark.admission import decide, gate, pacing, shares, shedder, sla
from tidemark.admission.arriving import Part, Turned
from tidemark.admission.counting import Counting
from tidemark.admission.decide import State
from tidemark.admission.sla import Sla, StreamState
from tidemark.coordinator import unlogged
from tidemark.shard_state.books import Books


def refusal_uncounted() -> AbstractContextManager[Any]:
    """What is pushed back for want of room is told, and not counted."""
    add = Counting.add

    def without(self: Counting, reason: Turned, *rest: Any) -> None:
        if reason is not Turned.BACKPRESSURE:
            add(self, reason, *rest)

    return patch.object(Counting, "add", without)


def bucket_starts_full() -> AbstractContextManager[Any]:
    """After a restart every stream has its burst again."""

    def full(self: State, stream: Any) -> StreamState:
        known = self.streams.get(stream)
        return known or StreamState(self.rules.agreed[stream].burst, self.since_us)

    return patch.object(State, "stream", full)


def bucket_without_debt() -> AbstractContextManager[Any]:
    """A write costs no more than there is."""
    after = sla.after

    def forgiving(agreed: Sla, state: StreamState, *rest: Any, **more: Any) -> StreamState:
        found = after(agreed, state, *rest, **more)
        return found._replace(tokens=max(found.tokens, 0))

    return patch.object(decide, "after", forgiving)


def tokens_spent_by_refused() -> AbstractContextManager[Any]:
    """A write that is turned away takes its tokens all the same."""
    after = sla.after
    return patch.object(decide, "after", lambda *rest, **_: after(*rest, is_admitted=True))


def back_too_early() -> AbstractContextManager[Any]:
    """A producer is told to come when the debt is just paid, and then there is nothing in the bucket yet."""
    rate = sla._rate

    def early(*arguments: Any) -> Any:
        found: Any = rate(*arguments)
        return found and found._replace(retry_after_us=found.retry_after_us - 1)

    return patch.object(sla, "_rate", early)


def jitter_by_event_time() -> AbstractContextManager[Any]:
    """The pause is measured from the last event, so a stream that was silent once is locked out."""
    breach = sla.breach

    def by_event(agreed: Sla, stream: Any, state: StreamState, part: Part, source: Any, now_us: int) -> Any:
        arrived_us = state.arrived_us if part.newest_us is None else part.newest_us
        return breach(agreed, stream, state._replace(arrived_us=arrived_us), part, source, now_us)

    return patch.object(decide, "breach", by_event)


def shed_before_agreement() -> AbstractContextManager[Any]:
    """The shedder is asked before what was agreed."""
    breach = decide._breach

    def unless_waiting(state: State, *rest: Any) -> Any:
        return None if state.load.waited_us > state.rules.patience.target_us else breach(state, *rest)

    return patch.object(decide, "_breach", unless_waiting)


def critical_is_shed() -> AbstractContextManager[Any]:
    """`critical` is a priority like any other."""

    def whoever(state: Any, patience: Any, _priority: Any, now_us: int) -> bool:
        since_us = state.above_since_us
        return since_us is not None and now_us - since_us >= patience.interval_us

    return patch.object(shedder, "sheds", whoever)


def share_not_given_back() -> AbstractContextManager[Any]:
    """What was flushed still counts."""
    return patch.object(gate, "released", lambda state, _decision: state)


def shares_not_guaranteed() -> AbstractContextManager[Any]:
    """Whoever comes first has it all."""
    return patch.object(decide, "exceeded", lambda _shares, held, wanted, load: _when_full(held, wanted, load))


def _when_full(held: Any, wanted: Any, load: Any) -> list[Any]:
    total = shares.Held()
    for each in held.values():
        total = total.plus(each)
    return list(wanted) if total.of(load) >= 1.0 else []


def decrease_smoothed() -> AbstractContextManager[Any]:
    """Half is only aimed at."""
    stepped = pacing.stepped

    def slowly(rates: Any, *rest: Any) -> Any:
        found = stepped(rates, *rest)
        return found._replace(given=rates.given + 0.3 * (found.target - rates.given))

    return patch.object(pacing, "stepped", slowly)


def loud_gets_more() -> AbstractContextManager[Any]:
    """Nobody who ignores its pace is made to wait."""
    return patch.object(gate.Gate, "pause_us", lambda *_: 0)


def counts_not_sealed() -> AbstractContextManager[Any]:
    """A sealed log file takes its counts with it."""
    return patch.object(Books, "carried_over", lambda self, **_: Books(counted_to_us=self.counted_to_us))


def counts_sealed_twice() -> AbstractContextManager[Any]:
    """What is in a line of the manifest is in the next one, too."""
    return patch.object(Books, "carried_over", lambda self, **_: self)


def kill_not_noticed() -> AbstractContextManager[Any]:
    """A start does not look whether a door was counting."""
    return patch.object(Books, "noted", lambda self, message: Books(self.tally.plus(message.tally), self.after_segment))


def notes_never_due() -> AbstractContextManager[Any]:
    """Counts wait for the next write, however long that takes."""
    return patch.object(unlogged, "MINUTE_US", 10**15)


ADMISSION = (
    Beside(
        "refusal_uncounted",
        "A3",
        "what a shard had no room for is told and not counted",
        refusal_uncounted,
        "tests/unit/test_admission.py::test_a3_what_a_shard_had_no_room_for_has_cost_nothing",
    ),
    Beside(
        "bucket_starts_full",
        "A2",
        "after a restart every stream has its burst again",
        bucket_starts_full,
        "tests/unit/test_admission.py::test_a2_a_start_begins_with_nothing_and_the_first_write_gets_through_at_once",
    ),
    Beside(
        "bucket_without_debt",
        "A2",
        "a write costs no more than there is",
        bucket_without_debt,
        "tests/unit/test_admission.py::test_a2_over_an_hour_the_admitted_rate_is_the_configured_one_within_one_write",
    ),
    Beside(
        "tokens_spent_by_refused",
        "A1",
        "a write that is turned away takes its tokens all the same",
        tokens_spent_by_refused,
        "tests/unit/test_admission.py::test_a2_tokens_are_spent_by_what_was_let_in_and_by_nothing_else",
    ),
    Beside(
        "back_too_early",
        "A2",
        "who comes back when told finds nothing in the bucket yet",
        back_too_early,
        "tests/unit/test_admission.py::test_a2_whoever_comes_back_when_told_is_let_in",
    ),
    Beside(
        "jitter_by_event_time",
        "A2",
        "a stream that was silent once is locked out",
        jitter_by_event_time,
        "tests/unit/test_admission.py::test_a2_jitter_compares_with_the_last_arrival_so_a_pause_locks_nobody_out",
    ),
    Beside(
        "shed_before_agreement",
        "A1",
        "the shedder is asked before what was agreed",
        shed_before_agreement,
        "tests/unit/test_admission.py::test_a1_an_agreement_wins_over_the_shedder_and_lag_over_jitter_over_rate",
    ),
    Beside(
        "critical_is_shed",
        "A3",
        "critical is a priority like any other",
        critical_is_shed,
        "tests/unit/test_admission_load.py::test_a3_one_more_priority_makes_room_with_each_interval_and_critical_never_does",
    ),
    Beside(
        "share_not_given_back",
        "A3",
        "what was flushed still counts in its class",
        share_not_given_back,
        "tests/unit/test_admission.py::test_a3_whatever_happens_received_is_admitted_and_turned_away",
    ),
    Beside(
        "shares_not_guaranteed",
        "A3",
        "whoever comes first has all the room",
        shares_not_guaranteed,
        "tests/unit/test_admission_load.py::test_a3_alone_a_class_gets_everything_and_the_other_still_gets_its_share",
    ),
    Beside(
        "decrease_smoothed",
        "A4",
        "half is only aimed at",
        decrease_smoothed,
        "tests/unit/test_admission_load.py::test_a4_it_halves_above_nine_tenths_and_eases_above_seven_at_once",
    ),
    Beside(
        "loud_gets_more",
        "A4",
        "who ignores its pace is listened to all the same",
        loud_gets_more,
        "tests/unit/test_admission_load.py::test_a4_one_rude_client_costs_nine_polite_ones_at_most_five_per_cent",
    ),
    Beside(
        "counts_not_sealed",
        "A3",
        "a log file without writes takes its counts with it",
        counts_not_sealed,
        "tests/unit/test_turned_away.py::test_a3_a_log_file_without_writes_becomes_no_segment_and_its_counts_stay",
    ),
    Beside(
        "counts_sealed_twice",
        "A3",
        "what is in a line of the manifest is in the next one, too",
        counts_sealed_twice,
        "tests/unit/test_turned_away.py::test_a3_sealing_takes_the_counts_into_the_line_and_the_totals_once",
    ),
    Beside(
        "kill_not_noticed",
        "A3",
        "a start does not look whether a door was counting",
        kill_not_noticed,
        "tests/unit/test_turned_away_account.py::test_a3_after_a_kill_the_account_names_the_time_before_and_after_the_next_start",
    ),
    Beside(
        "notes_never_due",
        "A3",
        "counts wait for the next write, however long that takes",
        notes_never_due,
        "tests/unit/test_turned_away.py::test_a3_counts_are_logged_after_a_minute_at_the_latest",
    ),
)
