"""Metadata and clocks along the fold: in Python, only for rows that have any.

Belongs here: applying a patch and a clock to those of a vector. `loops.py` decides which rows have an effect.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.model.operations import CODES, RULES
from tidemark.vectors.loops import APPLIED, START, STARTED, Bytes, Numbers
from tidemark.vectors.schema import CLOCK, METADATA

Mask = npt.NDArray[np.bool_]

# Operations by their numbers: those after which metadata starts empty, and those whose own patch does not count.
_ANEW = frozenset(CODES[operation] for operation, rule in RULES.items() if rule.begins_anew)
_WITHOUT_PATCH = frozenset(CODES[operation] for operation, rule in RULES.items() if not rule.takes_patch)


class MapRows(NamedTuple):
    """The folded rows, as far as they matter here: maps by row, everything else by step."""

    ops: Bytes
    effects: Bytes
    is_first: Bytes
    is_emitted: Bytes
    order: Numbers  # step → row
    metadata: pa.Array
    clocks: pa.Array


class Maps:
    """Metadata and clock of the vector whose rows are coming."""

    def __init__(self) -> None:
        self._metadata: dict[str, str] = {}
        self._clock: dict[str, int] = {}

    def follow(self, rows: MapRows, begin: int, end: int) -> tuple[pa.Array, pa.Array]:
        """Go through the steps from one to another; returns metadata and clock of every returned state."""
        ops, effects, is_first, is_emitted = (column[begin:end] for column in rows[:4])
        order = rows.order[begin:end]
        given = int(is_emitted.sum())
        is_filled = _is_filled(rows.metadata, order) | _is_filled(rows.clocks, order)
        if not (is_filled.any() or self._metadata or self._clock):
            return pa.nulls(given, METADATA), pa.nulls(given, CLOCK)
        vector = np.cumsum(is_first, dtype=np.int64)
        has_effect = np.isin(effects, (APPLIED, STARTED))
        has_map = is_filled & has_effect
        with_maps = np.zeros(int(vector[-1]) + 1, np.bool_)
        with_maps[vector[has_map]] = True
        with_maps[0] |= bool(self._metadata or self._clock)
        begins_anew = np.isin(ops, tuple(_ANEW)) & (effects == APPLIED)
        visited = np.flatnonzero(with_maps[vector] & (has_map | begins_anew | (is_emitted == 1)))
        places = np.where(is_emitted, np.cumsum(is_emitted, dtype=np.int64) - 1, -1)
        numbers = [column[visited].tolist() for column in (vector, ops, has_effect, places)]
        maps = (_dicts(column, order[visited]) for column in (rows.metadata, rows.clocks))
        return self._visit(zip(*numbers, *maps, strict=True), int(vector[-1]), given)

    def _visit(self, visited: Iterable[tuple[Any, ...]], last: int, given: int) -> tuple[pa.Array, pa.Array]:
        metadata_given: list[list[tuple[str, str]] | None] = [None] * given
        clocks_given: list[list[tuple[str, int]] | None] = [None] * given
        present = 0
        for own, op, is_effective, place, patch, clock in visited:
            if own != present:
                present = own
                self._forget()
            if is_effective:
                self._apply(op, patch, clock)
            if place >= 0:
                metadata_given[place] = sorted(self._metadata.items()) or None
                clocks_given[place] = sorted(self._clock.items()) or None
        if last != present:
            self._forget()
        return pa.array(metadata_given, METADATA), pa.array(clocks_given, CLOCK)

    def _forget(self) -> None:
        self._metadata, self._clock = {}, {}

    def _apply(self, op: int, patch: Mapping[str, str | None], clock: Mapping[str, int | None]) -> None:
        before = {} if op in _ANEW or op == START else self._metadata
        if op in _WITHOUT_PATCH:
            patch = {}
        self._metadata = patched(before, patch) if patch else before
        if clock:
            self._clock = merged(self._clock, clock)


def patched(metadata: Mapping[str, str], patch: Mapping[str, str | None]) -> dict[str, str]:
    """Metadata after a patch: its keys are set, and those with null are removed."""
    return {key: value for key, value in {**metadata, **patch}.items() if value is not None}


def merged(clock: Mapping[str, int], other: Mapping[str, int | None]) -> dict[str, int]:
    """The maximum of two clocks, entry by entry; a missing entry is 0 (D8), and so is one without a number."""
    return {key: max(clock.get(key, 0), other.get(key) or 0) for key in {**clock, **other}}


def _dicts(maps: pa.Array, rows: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """The maps of some rows, empty if there is none; taken from flat lists, because Arrow's own way is slower."""
    chosen = maps.take(pa.array(rows))
    ends = chosen.offsets.to_pylist()
    names, values = chosen.keys.to_pylist(), chosen.items.to_pylist()
    return [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in pairwise(ends)]


def _is_filled(maps: pa.Array, rows: Numbers) -> Mask:
    """Whether the map of each of some rows has an entry."""
    if maps.null_count == len(maps):
        return np.zeros(len(rows), np.bool_)
    return np.asarray((np.diff(np.asarray(maps.offsets)) > 0) & np.asarray(maps.is_valid()))[rows]
