"""Arrival: from a group of writes to its rows for the log, with a verdict on every delta.

Belongs here: the order of decisions (structure, values, identity, watermark stamp), each of which is made once and
written into the log. Everything downstream reads these verdicts and never decides again.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.columns import Mask, Numbers, Words, constant, nulls, numbers_of, repeated
from tidemark.door.decode import DecodedBatch, decode_group
from tidemark.door.decoded import Deltas, Refusal, bounded, scattered
from tidemark.door.originals import keep_originals
from tidemark.event_time.by_stream import NO_TIME, Parts
from tidemark.event_time.watermarks import Watermarks
from tidemark.log.control import VectorsCut
from tidemark.log.log_rows import FEW_TEXTS, LogRows, Writes
from tidemark.model.deltas import Reason, Verdict
from tidemark.model.event_time_rules import Stream
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import TIMESTAMP
from tidemark.model.settings import Settings
from tidemark.model.timegrid import from_us
from tidemark.verdicts.checks import check
from tidemark.verdicts.delta_hashes import delta_hashes, of_passed
from tidemark.verdicts.digests import write_digests
from tidemark.verdicts.identities import REMEMBERED_COLUMNS, Identities, Seen, Sighting


class NumberedWrite(NamedTuple):
    """A write that has its epoch."""

    epoch: int
    producer: str
    sequence: int
    received_us: int
    deltas: Deltas
    most_bytes: int = 0  # that it can take in the log


class VerdictCounts(NamedTuple):
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
        self.raised_us: int | None = None  # the earliest time of an event, if the log has raised it
        self.cut: VectorsCut | None = None  # older changes to vectors are refused

    def raise_earliest(self, earliest_us: int | None) -> None:
        """Refuse older events from now on (D9, R5). The bound never falls, and higher settings take precedence."""
        if earliest_us is None or (self.raised_us is not None and earliest_us <= self.raised_us):
            return
        self.raised_us = earliest_us
        if earliest_us > self._settings.earliest_event_us:
            self._settings = msgspec.structs.replace(self._settings, earliest_event_ts=from_us(earliest_us))

    def cut_vectors(self, cut: VectorsCut | None) -> None:
        """Refuse older changes to vectors from now on (K4). It never moves back."""
        if cut is not None and (self.cut is None or cut.cut_us > self.cut.cut_us):
            self.cut = cut

    def decide(self, writes: Sequence[NumberedWrite]) -> tuple[LogRows, list[VerdictCounts]]:
        """All writes as one group of the log, and the verdict counts of each write."""
        decoded = decode_group([write.deltas for write in writes], self._series)
        rows, words = decoded.rows, dict(decoded.words)
        sizes = np.array([len(write.deltas) for write in writes])
        columns = decoded.columns | _numbering(writes, sizes)
        if columns["origin"].null_count == rows:
            columns["origin"] = columns["producer"]
            words["origin"] = frozenset(write.producer for write in writes)
        elif columns["origin"].null_count:
            columns["origin"] = columns["origin"].fill_null(columns["producer"])

        refusals = decoded.refusals
        malformed = sorted(refusals)
        refused = _mask(refusals, rows)
        received_us = np.repeat(np.array([write.received_us for write in writes]), sizes)
        cut_us = None if self.cut is None else self.cut.cut_us
        refusals |= check(columns, received_us, self._settings, refused, words, cut_us=cut_us)
        passed = ~_mask(refusals, rows)
        namespaces = words.get("namespace", ())
        hashes = delta_hashes(columns, next(iter(namespaces)) if len(namespaces) == 1 else None)
        digests = write_digests(decoded, malformed, hashes, sizes)
        columns |= of_passed(hashes, passed)
        copies = self._find_copies(columns, passed, refusals)
        accepted = passed & ~_mask(copies, rows) if copies else passed
        columns |= _verdicts(rows, copies, refusals)
        columns |= _originals(refusals, decoded, sizes)
        if not copies and not refusals:
            words["verdict"] = frozenset([str(Verdict.ACCEPTED)])
        stamps_us, columns["watermark_ts"] = self._stamps(writes, sizes, words, columns, accepted)
        shared = {name: next(iter(words[name])) for name in FEW_TEXTS if len(words.get(name, ())) == 1}
        found = LogRows.made(self._shard, _writes(writes, sizes, stamps_us, digests), shared, columns)
        return found, _outcomes(sizes, accepted, _mask(refusals, rows))

    def remember(self, columns: Mapping[str, pa.Array]) -> None:
        """Recovery: put the log's deltas into the memory, without deciding anything again.

        `columns` are the remembered ones, and the verdict.
        """
        if not self.identities.capacity:
            return
        # A checksum covers them, but loops without bounds checks must not be misled by any bytes.
        for column in columns.values():
            column.validate(full=True)
        hashes = columns["identity_hash"]
        if hashes.null_count:
            is_known = hashes.is_valid()
            columns = {name: column.filter(is_known) for name, column in columns.items()}
        if len(columns["identity_hash"]):
            # A duplicate takes a place but is not the first of its identity, even if the first is no longer remembered.
            self.identities.add(columns, np.asarray(pc.equal(columns["verdict"], str(Verdict.ACCEPTED))))

    def replay(self, rows: LogRows) -> None:
        """Recovery: bring watermarks to where they were after these writes."""
        columns = {name: rows.column(name) for name in ("namespace", "kind", "event_ts")}
        words = {name: frozenset([rows.shared[name]]) for name in ("namespace", "kind") if name in rows.shared}
        accepted = (
            np.full(rows.rows, rows.shared["verdict"] == Verdict.ACCEPTED)
            if "verdict" in rows.shared
            else np.asarray(pc.equal(rows.columns["verdict"], str(Verdict.ACCEPTED)))
        )
        writes = rows.writes
        parts = Parts(columns, words, np.array(writes.sizes), accepted)
        stamps = writes.stamps_us if parts.has_one_stream else None
        if stamps is None:
            by_row = rows.column("watermark_ts")
            stamps_us = np.where(np.asarray(by_row.is_valid()), numbers_of(by_row), NO_TIME)
            stamps = parts.greatest(stamps_us).tolist()
        for number, place, stream, deltas, latest_us in parts:
            stamp = stamps[number]
            self.watermarks.restore(stream, None if stamp == NO_TIME else stamp)
            self._observe(stream, writes.producers[place], deltas, latest_us, writes.received_us[place])

    def _find_copies(
        self, columns: dict[str, pa.Array], passed: Mask, refusals: dict[int, Refusal]
    ) -> dict[int, Sighting]:
        """Rows that were seen before. Another delta under a known identity is refused; a duplicate is no error."""
        if not self.identities.capacity:
            return {}
        remembered = {name: columns[name] for name in REMEMBERED_COLUMNS}
        if refusals:
            rows = passed.nonzero()[0]
            chosen = pa.array(rows)
            taken = {name: column.take(chosen) for name, column in remembered.items()}
            sightings = self.identities.add(taken)
            copies = {int(rows[at]): sighting for at, sighting in sightings.items()}
        else:
            copies = self.identities.add(remembered)
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
        sizes: Numbers,
        words: Words,
        columns: dict[str, pa.Array],
        accepted: Mask,
    ) -> tuple[list[int] | None, pa.Array]:
        """The watermark before each write, per stream; then the write's own events count (T4).

        One value for each write if that is enough, otherwise row by row.
        """
        parts = Parts(columns, words, sizes, accepted)
        stamps = [NO_TIME] * parts.number_of_parts
        for number, place, stream, deltas, latest_us in parts:
            write = writes[place]
            stamp = self.watermarks.stamp(stream, write.received_us)
            if stamp is not None:
                stamps[number] = stamp
            self._observe(stream, write.producer, deltas, latest_us, write.received_us)
        if parts.has_one_stream and NO_TIME not in stamps and accepted.all():
            return stamps, nulls(len(accepted), TIMESTAMP)
        by_row = parts.spread(np.array(stamps))
        has_none = by_row == NO_TIME
        if not accepted.all():
            has_none |= ~accepted
        return None, pa.array(by_row, mask=has_none if has_none.any() else None).view(TIMESTAMP)

    def _observe(self, stream: Stream, producer: str, deltas: int, latest_us: int, received_us: int) -> None:
        """The only place where accepted deltas of a write move a watermark."""
        self.watermarks.observe(stream, producer, deltas, latest_us, received_us)


def _numbering(writes: Sequence[NumberedWrite], sizes: Numbers) -> dict[str, pa.Array]:
    """The other inputs of decisions besides the deltas: the place of each, and its producer."""
    epochs = np.array([write.epoch for write in writes])
    ordinals = np.zeros(len(writes), dtype=np.int32)
    if (total := int(sizes.sum())) > len(writes):
        epochs = np.repeat(epochs, sizes)
        ordinals = np.arange(total, dtype=np.int32) - np.repeat((np.cumsum(sizes) - sizes).astype(np.int32), sizes)
    return {
        "epoch": pa.array(epochs),
        "ordinal": pa.array(ordinals),
        "producer": repeated([write.producer for write in writes], sizes),
    }


def _writes(writes: Sequence[NumberedWrite], sizes: Numbers, stamps_us: list[int] | None, digests: list[int]) -> Writes:
    return Writes(
        epochs=[write.epoch for write in writes],
        producers=[write.producer for write in writes],
        sequences=[write.sequence for write in writes],
        received_us=[write.received_us for write in writes],
        ordinals=[0] * len(writes),
        sizes=sizes.tolist(),
        stamps_us=stamps_us,
        digests=digests,
    )


def _mask(rows: Mapping[int, object], total: int) -> Mask:
    mask = np.zeros(total, dtype=np.bool_)
    if rows:
        mask[list(rows)] = True
    return mask


def _verdicts(rows: int, copies: dict[int, Sighting], refusals: dict[int, Refusal]) -> dict[str, pa.Array]:
    if not copies and not refusals:
        nothing = nulls(rows, pa.string())
        return {"verdict": constant(Verdict.ACCEPTED, rows), "reason": nothing, "detail": nothing}
    verdicts = np.zeros(rows, dtype=np.int8)
    verdicts[list(copies)] = 1
    verdicts[list(refusals)] = 2
    return {
        "verdict": pa.array([str(Verdict.ACCEPTED), str(Verdict.DUPLICATE), str(Verdict.REFUSED)]).take(
            pa.array(verdicts)
        ),
        "reason": scattered({row: str(why.reason) for row, why in refusals.items()}, rows, pa.string()),
        "detail": scattered({row: bounded(why.detail) for row, why in refusals.items()}, rows, pa.string()),
    }


def _originals(refusals: dict[int, Refusal], decoded: DecodedBatch, sizes: Numbers) -> dict[str, pa.Array]:
    """The original bytes of refused deltas: fewer of each if a write has many of them (C14)."""
    writes = np.repeat(np.arange(len(sizes)), sizes).tolist() if refusals else []
    kept = keep_originals(sorted(refusals), writes.__getitem__, decoded)
    return {
        "raw": scattered({row: found.raw for row, found in kept.items()}, decoded.rows, pa.binary()),
        "raw_bytes": scattered({row: found.length for row, found in kept.items()}, decoded.rows, pa.int64()),
    }


def _outcomes(sizes: Numbers, accepted: Mask, refused: Mask) -> list[VerdictCounts]:
    if accepted.all():
        by_size = {size: VerdictCounts(size, 0, 0) for size in set(sizes.tolist())}
        return [by_size[size] for size in sizes.tolist()]
    starts = np.cumsum(sizes) - sizes
    counts = (np.add.reduceat(mask, starts, dtype=np.int64).tolist() for mask in (accepted, refused))
    return [
        VerdictCounts(taken, size - taken - turned_down, turned_down)
        for size, taken, turned_down in zip(sizes.tolist(), *counts, strict=True)
    ]
