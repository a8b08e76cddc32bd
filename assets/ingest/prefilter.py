"""The prefilter over segments: the few rows that need a closer look; all others are written as they are.

Belongs here: finding rows of the log that were refused, or that share a 64-bit identity hash with another accepted
row. It reads 8 bytes a row, in Arrow and NumPy, where a shuffle of whole rows in Spark costs twenty times as much.
Does not belong here: whether a suspect is a duplicate. A hash can only prove that a row is new; Spark compares whole
identities.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.log.manifest import Entry
from tidemark.log.segments import whole
from tidemark.model.deltas import PAYLOADS, Verdict
from tidemark.model.log_schema import LOG_SCHEMA

# This many hashes are in memory at once: 160 MB, and as much again while they are sorted.
HASHES_AT_ONCE = 20_000_000
# Columns with few distinct values, which are compared and copied as numbers.
DICTIONARIES = ["verdict", "reason", "detail", "namespace", "kind", "producer", "origin", "source", "priority", "key"]
ENVELOPE = [name for name in LOG_SCHEMA.names if name not in PAYLOADS]

Hashes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """A verified segment: its manifest entry and its file."""

    entry: Entry
    path: Path


@dataclass(frozen=True)
class Suspects:
    """Refused rows and suspects, as a Parquet file of log rows; `file` is None when there are none."""

    file: Path | None
    suspects: int  # how many; the other rows of the file are refused ones


def prefilter(segments: Sequence[Segment], *, known_files: Sequence[str], target: Path) -> Suspects:
    """Write the rows of `segments` that need a closer look to the file `target`.

    `known_files` are data files of `deltas`: an accepted row whose hash is in one of them is a suspect as well.
    """
    hashes = repeated_hashes(segments, known_files)
    suspects = 0
    writer: pq.ParquetWriter | None = None
    try:
        for segment in segments:
            for rows in _rows_aside(segment, hashes):
                writer = writer or pq.ParquetWriter(target, LOG_SCHEMA)
                writer.write_table(rows)
                suspects += pc.sum(pc.not_equal(rows["verdict"], Verdict.REFUSED.value)).as_py()
    finally:
        if writer:
            writer.close()
    return Suspects(target if writer else None, suspects)


def repeated_hashes(segments: Sequence[Segment], known_files: Sequence[str]) -> Hashes:
    """Identity hashes that several accepted rows share, here or in a data file of `deltas`; sorted, each once."""
    rows = sum(segment.entry.verdicts.accepted for segment in segments)
    passes = max(1, -(-rows // HASHES_AT_ONCE))
    found: list[Hashes] = []
    for number in range(passes):
        ours = [_share(_accepted_hashes(segment), number, passes) for segment in segments]
        hashes = np.sort(np.concatenate(ours)) if ours else np.empty(0, np.int64)
        found.append(hashes[1:][hashes[1:] == hashes[:-1]])
        for file in known_files:
            known = _share(_known_hashes(file), number, passes)
            found.append(known[is_member(known, hashes)])
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def is_member(values: Hashes, members: Hashes) -> npt.NDArray[np.bool_]:
    """Which of `values` are among `members`, which are sorted."""
    if not len(members):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(members, values), len(members) - 1)
    return np.equal(members[places], values)


def _share(hashes: Hashes, number: int, passes: int) -> Hashes:
    return hashes if passes == 1 else hashes[hashes.view(np.uint64) % np.uint64(passes) == number]


def _numbers(column: pa.ChunkedArray) -> Hashes:
    """The column without nulls: a row without a complete identity has no hash and cannot be a duplicate."""
    numbers: Hashes = column.drop_null().to_numpy()
    return numbers


def _accepted_hashes(segment: Segment) -> Hashes:
    with pq.ParquetFile(segment.path, read_dictionary=["verdict"]) as file:
        if segment.entry.verdicts.accepted == segment.entry.rows:
            return _numbers(file.read(columns=["identity_hash"])["identity_hash"])
        rows = file.read(columns=["identity_hash", "verdict"])
        return _numbers(rows["identity_hash"].filter(pa.array(_has(rows["verdict"], Verdict.ACCEPTED))))


def _has(verdicts: pa.ChunkedArray, verdict: Verdict) -> npt.NDArray[np.bool_]:
    """Which rows have this verdict: it is looked up once in each chunk's dictionary, then compared as a number."""
    return np.concatenate(
        [np.equal(chunk.indices, chunk.dictionary.index(verdict.value).as_py()) for chunk in verdicts.chunks]
        or [np.empty(0, np.bool_)]
    )


def _known_hashes(file: str) -> Hashes:
    with pq.ParquetFile(file) as known:
        return _numbers(known.read(columns=["identity_hash"])["identity_hash"])


def _rows_aside(segment: Segment, hashes: Hashes) -> Iterator[pa.Table]:
    """Refused rows and suspects of one segment; whole columns are decoded only if there are any."""
    if not segment.entry.verdicts.refused and not len(hashes):
        return
    with pq.ParquetFile(segment.path, read_dictionary=DICTIONARIES) as file:
        for group in range(file.num_row_groups):
            narrow = file.read_row_group(group, columns=["identity_hash", "verdict"])
            refused, accepted = (_has(narrow["verdict"], verdict) for verdict in (Verdict.REFUSED, Verdict.ACCEPTED))
            suspect = accepted & is_member(pc.fill_null(narrow["identity_hash"], 0).to_numpy(), hashes)
            places = np.flatnonzero(refused | suspect)
            if len(places):
                yield _take(file, group, places, has_payloads=bool(suspect.any()))


def _take(file: pq.ParquetFile, group: int, places: npt.NDArray[np.intp], *, has_payloads: bool) -> pa.Table:
    """Some complete rows of a row group; a refused row has its payload in `raw`, so its columns need no decoding."""
    columns = LOG_SCHEMA.names if has_payloads else ENVELOPE
    return whole(file.read_row_group(group, columns=columns).take(pa.array(places)))
