"""Arrival: a group of writes comes in, a batch for the log comes out, with a verdict on every delta.

Belongs here: the order of decisions (structure, values, identity, watermark stamp), each of which is made once and
written down. Everything downstream reads these verdicts and never decides again.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from resources.coordinator.checks import check
from resources.coordinator.decode import DecodedBatch, Refusal, Sent, bounded_original, decode
from resources.coordinator.fingerprint import SeriesNames
from resources.coordinator.hashing import combine, hash_array
from resources.coordinator.identities import IDENTITY_COLUMNS, Identities, Seen, Sighting
from resources.coordinator.model import Kind, Reason, Verdict
from resources.coordinator.schema import LOG_SCHEMA, SENT_FIELDS, TIMESTAMP
from resources.coordinator.watermarks import Watermarks
from resources.settings import Settings


class NumberedWrite(NamedTuple):
    """A write that has its epoch."""

    epoch: int
    producer: str
    sequence: int
    received_us: int
    deltas: Sequence[Sent] | pa.RecordBatch


class Outcome(NamedTuple):
    """How many deltas of one write got which verdict."""

    accepted: int
    duplicate: int
    refused: int


class Arrivals:
    """The deciding part of a shard: everything it remembers about deltas, and nothing about disks or threads."""

    def __init__(self, shard: int, settings: Settings, watermarks: Watermarks, identities: Identities) -> None:
        self._shard = shard
        self._settings = settings
        self._series = SeriesNames()
        self.watermarks = watermarks
        self.identities = identities

    def decide(self, writes: Sequence[NumberedWrite]) -> tuple[pa.RecordBatch, list[Outcome]]:
        """One batch in the log's schema for all writes, and each write's outcome."""
        decoded = [decode(write.deltas, self._series) for write in writes]
        sizes = np.array([part.rows for part in decoded])
        starts = np.concatenate(([0], np.cumsum(sizes)))
        columns = _concatenate(decoded)
        columns |= self._numbering(writes, sizes)
        columns["origin"] = (
            columns["origin"].fill_null(columns["producer"]) if columns["origin"].null_count else columns["origin"]
        )

        refusals = {
            int(start) + row: why
            for start, part in zip(starts, decoded, strict=False)
            for row, why in part.refusals.items()
        }
        skip = np.zeros(int(starts[-1]), dtype=np.bool_)
        skip[list(refusals)] = True
        refusals |= check(columns, np.repeat([write.received_us for write in writes], sizes), self._settings, skip)
        passed = np.ones(len(skip), dtype=np.bool_)
        passed[list(refusals)] = False

        columns["identity_hash"] = _hashes([columns[name] for name in IDENTITY_COLUMNS], passed)
        columns["content_hash"] = _hashes([columns[kind] for kind in Kind], passed)
        copies = self._find_copies(columns, passed, refusals)
        accepted = passed.copy()
        accepted[list(copies)] = False
        columns |= _verdicts(accepted, copies, refusals)
        columns |= _originals(refusals, decoded, starts)
        columns["watermark_ts"] = self._stamps(writes, starts, columns, accepted)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in LOG_SCHEMA.names], schema=LOG_SCHEMA)
        return batch, _outcomes(starts, accepted, refusals)

    def remember(self, batch: pa.RecordBatch) -> None:
        """Recovery: put what the log says into the memory, without deciding anything again."""
        passed = np.flatnonzero(np.asarray(batch["identity_hash"].is_valid()))
        if len(passed):
            rows = pa.array(passed)
            self.identities.add({name: batch[name].take(rows) for name in batch.schema.names})

    def replay(self, batch: pa.RecordBatch) -> None:
        """Recovery: bring watermarks to where they were after these writes."""
        names = ["namespace", "kind", "epoch", "producer", "event_ts", "received_ts", "watermark_ts"]
        rows = batch.select(names).filter(pc.equal(batch["verdict"], str(Verdict.ACCEPTED)))
        if not rows.num_rows:
            return
        streams = _stream_codes({name: rows[name] for name in ("namespace", "kind")})
        # One number per (write, stream), in the order of the writes; streams do not touch each other.
        numbers = np.asarray(rows["epoch"]) * len(streams.names) + streams.codes
        order = np.argsort(numbers, kind="stable")
        firsts = np.flatnonzero(np.concatenate(([True], np.diff(numbers[order]) > 0)))
        counts = np.diff(np.concatenate((firsts, [len(order)])))
        newest = np.maximum.reduceat(np.asarray(rows["event_ts"].cast(pa.int64()))[order], firsts)
        codes = streams.codes[order[firsts]]
        heads = rows.select(["producer", "received_ts", "watermark_ts"]).take(pa.array(order[firsts]))
        received, stamps = (heads[name].cast(pa.int64()).to_pylist() for name in ("received_ts", "watermark_ts"))
        for code, producer, count, newest_us, received_us, stamp_us in zip(
            codes, heads["producer"].to_pylist(), counts.tolist(), newest.tolist(), received, stamps, strict=True
        ):
            stream = streams.names[code]
            self.watermarks.restore(stream, stamp_us)
            self.watermarks.observe(stream, producer, count, newest_us, received_us)

    def _numbering(self, writes: Sequence[NumberedWrite], sizes: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        total = int(sizes.sum())
        ordinals = np.concatenate([np.arange(size) for size in sizes])
        producers = pa.array([write.producer for write in writes]).take(
            pa.array(np.repeat(np.arange(len(writes)), sizes))
        )
        return {
            "shard": pa.array(np.full(total, self._shard), pa.int32()),
            "epoch": pa.array(np.repeat([write.epoch for write in writes], sizes), pa.int64()),
            "ordinal": pa.array(ordinals, pa.int32()),
            "producer": producers,
            "sequence": pa.array(np.repeat([write.sequence for write in writes], sizes), pa.int64()),
            "received_ts": pa.array(np.repeat([write.received_us for write in writes], sizes), pa.int64()).cast(
                TIMESTAMP
            ),
        }

    def _find_copies(
        self, columns: dict[str, pa.Array], passed: npt.NDArray[np.bool_], refusals: dict[int, Refusal]
    ) -> dict[int, Sighting]:
        """Rows that were seen before. Another delta under a known identity is refused; a copy is no error."""
        if not self.identities.capacity:
            return {}
        rows = np.flatnonzero(passed)
        chosen = pa.array(rows)
        sightings = self.identities.add({name: column.take(chosen) for name, column in columns.items()})
        copies = {int(rows[at]): sighting for at, sighting in sightings.items()}
        for row, sighting in copies.items():
            if sighting.seen is Seen.REUSED:
                where = f"epoch {sighting.epoch}, place {sighting.ordinal}"
                refusals[row] = Refusal(
                    Reason.ID_REUSE, f"Another delta has the same namespace, key, time and id ({where})."
                )
        return copies

    def _stamps(
        self,
        writes: Sequence[NumberedWrite],
        starts: npt.NDArray[np.int64],
        columns: dict[str, pa.Array],
        accepted: npt.NDArray[np.bool_],
    ) -> pa.Array:
        """The watermark before each write, per stream; then the write's own events count (T4)."""
        streams = _stream_codes(columns)
        events = np.asarray(columns["event_ts"].cast(pa.int64()).fill_null(0))
        stamps = np.zeros(len(accepted), dtype=np.int64)
        has_stamp = np.zeros(len(accepted), dtype=np.bool_)
        for write, start, end in zip(writes, starts[:-1], starts[1:], strict=True):
            rows = start + np.flatnonzero(accepted[start:end])
            codes = streams.codes[rows]
            for code in np.unique(codes):
                mine = rows[codes == code]
                stream = streams.names[code]
                stamp = self.watermarks.stamp(stream, write.received_us)
                if stamp is not None:
                    stamps[mine], has_stamp[mine] = stamp, True
                newest = int(events[mine].max())
                self.watermarks.observe(stream, write.producer, len(mine), newest, write.received_us)
        return pa.array(stamps, pa.int64(), mask=~has_stamp).cast(TIMESTAMP)


class _Streams(NamedTuple):
    codes: npt.NDArray[np.int64]
    names: list[tuple[str, str]]


def _stream_codes(columns: dict[str, pa.Array]) -> _Streams:
    namespaces, kinds = columns["namespace"].dictionary_encode(), columns["kind"].dictionary_encode()
    width = max(len(kinds.dictionary), 1)
    codes = np.asarray(namespaces.indices.fill_null(0)).astype(np.int64) * width + np.asarray(
        kinds.indices.fill_null(0)
    )
    names = [
        (namespace, kind) for namespace in namespaces.dictionary.to_pylist() for kind in kinds.dictionary.to_pylist()
    ]
    return _Streams(codes, names)


def _concatenate(parts: Sequence[DecodedBatch]) -> dict[str, pa.Array]:
    names = [name for name, _ in SENT_FIELDS] + ["key"]
    return {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in names}


def _hashes(columns: Sequence[pa.Array], passed: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(combine(*(hash_array(column) for column in columns)).view(np.int64), pa.int64(), mask=~passed)


def _verdicts(
    accepted: npt.NDArray[np.bool_], copies: dict[int, Sighting], refusals: dict[int, Refusal]
) -> dict[str, pa.Array]:
    verdicts = np.where(accepted, str(Verdict.ACCEPTED), str(Verdict.REFUSED)).astype(object)
    verdicts[[row for row, sighting in copies.items() if sighting.seen is Seen.COPY]] = str(Verdict.DUPLICATE)
    reasons: list[str | None] = [None] * len(accepted)
    details: list[str | None] = [None] * len(accepted)
    for row, refusal in refusals.items():
        reasons[row], details[row] = str(refusal.reason), refusal.detail
    return {
        "verdict": pa.array(verdicts, pa.string()),
        "reason": pa.array(reasons, pa.string()),
        "detail": pa.array(details, pa.string()),
    }


def _originals(
    refusals: dict[int, Refusal], decoded: Sequence[DecodedBatch], starts: npt.NDArray[np.int64]
) -> dict[str, pa.Array]:
    """What was sent, for the refused ones."""
    raw: list[bytes | None] = [None] * int(starts[-1])
    lengths: list[int | None] = [None] * int(starts[-1])
    for row in refusals:
        part = int(np.searchsorted(starts, row, side="right")) - 1
        raw[row], lengths[row] = bounded_original(decoded[part].original(row - int(starts[part])))
    return {"raw": pa.array(raw, pa.binary()), "raw_bytes": pa.array(lengths, pa.int64())}


def _outcomes(
    starts: npt.NDArray[np.int64], accepted: npt.NDArray[np.bool_], refusals: dict[int, Refusal]
) -> list[Outcome]:
    is_refused = np.zeros(len(accepted), dtype=np.bool_)
    is_refused[list(refusals)] = True
    outcomes = []
    for start, end in pairwise(starts):
        taken, refused = int(accepted[start:end].sum()), int(is_refused[start:end].sum())
        outcomes.append(Outcome(taken, int(end - start) - taken - refused, refused))
    return outcomes
