"""Two deltas in one: canonical forms for the effect of any sequence of deltas on a vector (D5).

Belongs here: forms, composing them, and applying them to a state. They serve merged delivery (C5), never stored state,
which is folded delta by delta (`fold.py`): composed scales overflow where the sequence does not.

A form describes the effect on a live vector: a replacement, a tombstone, or an affine map and then, for some
dimensions, a number that is set or added. A delta whose index points beyond the vector has no effect (D4), and the
vector's length is unknown until a form is applied, so there is one such outcome for each range of lengths. A form also
describes its result without a live vector: a vector, or a tombstone, if it has a `create` in it. Clocks are not
composed: they record, they do not order (D8).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

import numpy as np

from tidemark.model.deltas import Vector
from tidemark.model.operations import Operation
from tidemark.vectors.errors import UnknownOperationError
from tidemark.vectors.maps import patched

Patch = Mapping[str, str | None]


@dataclass(frozen=True)
class Live:
    """A vector that lives, as a state and as what a `create` makes."""

    values: tuple[float, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tombstone:
    """A vector that was deleted."""


@dataclass(frozen=True)
class Replacement:
    """Other values for a live vector; its metadata is patched."""

    values: tuple[float, ...]
    patch: Patch = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """`x * factor + amount`, plus the added number; a number that is set replaces this."""

    factor: float = 1.0
    amount: float = 0.0
    sets: Mapping[int, float] = field(default_factory=dict)
    adds: Mapping[int, float] = field(default_factory=dict)  # never of a dimension that is set
    patch: Patch = field(default_factory=dict)

    def value(self, dimension: int, before: float) -> float:
        """The new value of one number."""
        known = self.sets.get(dimension)
        return before * self.factor + self.amount + self.adds.get(dimension, 0.0) if known is None else known


# Nothing yet is None.
State: TypeAlias = Live | Tombstone | None
Outcome: TypeAlias = Live | Tombstone | Replacement | Change

TOMBSTONE = Tombstone()
UNCHANGED = Change()


@dataclass(frozen=True)
class Form:
    """The joint effect of deltas."""

    made: State  # without a live vector; None: no effect
    pieces: tuple[tuple[int, Outcome], ...]  # with a live vector: by the least length, rising from 0

    def outcome(self, length: int) -> Outcome:
        """The effect on a vector of this length."""
        return next(outcome for least, outcome in reversed(self.pieces) if least <= length)


def form_of(delta: Vector) -> Form:
    """The form of one delta. Its values are float32, as the log keeps them."""
    patch = dict(delta.metadata or {})
    values = tuple(np.array(delta.values or (), np.float32).astype(np.float64).tolist())
    match delta.op:
        case Operation.CREATE:
            made = Live(values, patched({}, patch))
            return Form(made, ((0, made),))
        case Operation.REPLACE:
            return Form(None, ((0, Replacement(values, patch)),))
        case Operation.DELETE:
            return Form(None, ((0, TOMBSTONE),))
        case Operation.SCALE:
            return Form(None, ((0, Change(factor=delta.factor or 0.0, patch=patch)),))
        case Operation.OFFSET:
            return Form(None, ((0, Change(amount=delta.amount or 0.0, patch=patch)),))
        case Operation.SET_DIMS | Operation.ADD_DIMS:
            some = dict(zip(delta.indices or (), values, strict=True))
            change = (
                Change(sets=some, patch=patch) if delta.op == Operation.SET_DIMS else Change(adds=some, patch=patch)
            )
            return Form(None, ((0, UNCHANGED), (max(some) + 1, change)))
        case _:
            raise UnknownOperationError(delta.op)


def apply_form(form: Form, state: State) -> State:
    """The state after applying the form."""
    if isinstance(state, Live):
        return _change_live(state, form.outcome(len(state.values)))
    return state if form.made is None else form.made


def compose(first: Form, second: Form) -> Form:
    """One form that does what `first` does, and then `second`."""
    pieces = []
    # Neighbouring lengths with the same outcome are one range, so a form does not depend on how it was composed.
    for outcome, same in groupby(_pieces(first, second), key=lambda piece: piece[1]):
        pieces.append((next(same)[0], outcome))
    return Form(apply_form(second, first.made), tuple(pieces))


def _pieces(first: Form, second: Form) -> Iterator[tuple[int, Outcome]]:
    ends = [least for least, _ in first.pieces[1:]]
    for (least, outcome), end in zip(first.pieces, [*ends, None], strict=True):
        match outcome:
            case Change():
                # Its length is that of the vector, so take the outcome of `second` for each length within the range.
                begins = {
                    least,
                    *(begin for begin, _ in second.pieces if begin > least and (end is None or begin < end)),
                }
                for begin in sorted(begins):
                    yield begin, _change_change(outcome, second.outcome(begin))
            case Replacement():
                yield least, _change_replacement(outcome, second.outcome(len(outcome.values)))
            case _:
                yield least, apply_form(second, outcome) or TOMBSTONE


def _change_live(before: Live, then: Outcome) -> Live | Tombstone:
    match then:
        case Replacement():
            return Live(then.values, patched(before.metadata, then.patch))
        case Change():
            return Live(_changed(before.values, then), patched(before.metadata, then.patch))
        case _:
            return then


def _change_replacement(before: Replacement, then: Outcome) -> Outcome:
    match then:
        case Replacement():
            return Replacement(then.values, {**before.patch, **then.patch})
        case Change():
            return Replacement(_changed(before.values, then), {**before.patch, **then.patch})
        case _:
            return then


def _change_change(before: Change, then: Outcome) -> Outcome:
    match then:
        case Replacement():
            return Replacement(then.values, {**before.patch, **then.patch})
        case Change():
            sets = {dimension: then.value(dimension, value) for dimension, value in before.sets.items()} | dict(
                then.sets
            )
            adds = {dimension: value * then.factor for dimension, value in before.adds.items()}
            for dimension, value in then.adds.items():
                adds[dimension] = adds.get(dimension, 0.0) + value
            return Change(
                before.factor * then.factor,
                before.amount * then.factor + then.amount,
                sets,
                {dimension: value for dimension, value in adds.items() if dimension not in sets},
                {**before.patch, **then.patch},
            )
        case _:
            return then


def _changed(values: tuple[float, ...], change: Change) -> tuple[float, ...]:
    return tuple(change.value(dimension, value) for dimension, value in enumerate(values))
