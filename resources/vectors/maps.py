"""Metadata and clocks along the fold: Python, for those rows alone that have any.

Belongs here: what a patch and a clock do to those of a vector. Which rows have an effect is decided in `loops.py`.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.vectors.loops import APPLIED, CREATE, DELETE, START, STARTED, Bytes
from resources.vectors.schema import CLOCK, METADATA

Mask = npt.NDArray[np.bool_]


class MapRows(NamedTuple):
    """Rows of a batch that were folded, as far as they matter here."""

    ops: Bytes
    effects: Bytes
    is_first: Bytes
    is_emitted: Bytes
    metadata: pa.Array
    clocks: pa.Array


class Maps:
    """Metadata and clock of the vector whose rows are coming."""

    def __init__(self) -> None:
        self._metadata: dict[str, str] = {}
        self._clock: dict[str, int] = {}

    def follow(self, rows: MapRows) -> tuple[pa.Array, pa.Array]:
        """Go through the rows; gives metadata and clock of every state that is given out."""
        vector = np.cumsum(rows.is_first, dtype=np.int64)
        has_map = (_is_filled(rows.metadata) | _is_filled(rows.clocks)) & np.isin(rows.effects, (APPLIED, STARTED))
        with_maps = np.zeros(int(vector[-1]) + 1, np.bool_)
        with_maps[vector[has_map]] = True
        with_maps[0] |= bool(self._metadata or self._clock)
        given = int(rows.is_emitted.sum())
        if not with_maps.any():
            return pa.nulls(given, METADATA), pa.nulls(given, CLOCK)
        begins_anew = np.isin(rows.ops, (CREATE, DELETE)) & (rows.effects == APPLIED)
        is_visited = with_maps[vector] & (has_map | begins_anew | (rows.is_emitted == 1))
        return self._visit(rows, vector, np.flatnonzero(is_visited), given)

    def _visit(
        self, rows: MapRows, vector: npt.NDArray[np.int64], visited: npt.NDArray[np.int64], given: int
    ) -> tuple[pa.Array, pa.Array]:
        metadata_given: list[list[tuple[str, str]] | None] = [None] * given
        clocks_given: list[list[tuple[str, int]] | None] = [None] * given
        places = np.where(rows.is_emitted, np.cumsum(rows.is_emitted, dtype=np.int64) - 1, -1)
        has_effect = np.isin(rows.effects, (APPLIED, STARTED))
        numbers = (column[visited].tolist() for column in (vector, rows.ops, has_effect, places))
        patches, clocks = _dicts(rows.metadata, visited), _dicts(rows.clocks, visited)
        present = 0
        for own, op, is_effective, place, patch, clock in zip(*numbers, patches, clocks, strict=True):
            if own != present:
                present = own
                self._forget()
            if is_effective:
                self._apply(op, patch, clock)
            if place >= 0:
                metadata_given[place] = sorted(self._metadata.items()) or None
                clocks_given[place] = sorted(self._clock.items()) or None
        if vector[-1] != present:
            self._forget()
        return pa.array(metadata_given, METADATA), pa.array(clocks_given, CLOCK)

    def _forget(self) -> None:
        self._metadata, self._clock = {}, {}

    def _apply(self, op: int, patch: Mapping[str, str | None], clock: Mapping[str, int | None]) -> None:
        before = {} if op in (CREATE, DELETE, START) else self._metadata
        if op == DELETE:
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
    """The maps of some rows, empty where there is none; taken from flat lists, because Arrow's own way is slower."""
    chosen = maps.take(pa.array(rows))
    ends = chosen.offsets.to_pylist()
    names, values = chosen.keys.to_pylist(), chosen.items.to_pylist()
    return [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in pairwise(ends)]


def _is_filled(maps: pa.Array) -> Mask:
    """Rows whose map has an entry."""
    if maps.null_count == len(maps):
        return np.zeros(len(maps), np.bool_)
    return np.asarray((np.diff(np.asarray(maps.offsets)) > 0) & np.asarray(maps.is_valid()))
