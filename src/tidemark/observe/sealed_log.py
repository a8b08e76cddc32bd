"""The sealed log as the batch plane sees it: manifests, and the segments that they name.

Belongs here: where segments are, whether they are as they were sealed, which hours they touch, and how far the
watermark has come. Does not belong here: anything that needs Spark, and anything that writes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

from tidemark.log.batch_record import BatchRecord
from tidemark.log.manifest import Entry, Manifest, Totals
from tidemark.log.segment_files import verify_segment
from tidemark.model.timegrid import hour_start
from tidemark.shard_state.clock_reset import corrected, read_resets
from tidemark.storage.home import Home
from tidemark.tables.plans import NotRetainedError, Plan, PlannedSegment


@dataclass(frozen=True)
class Watermark:
    """How far event time has come, and which shard and stream keeps it there; empty while no stream has one."""

    time_us: int | None = None
    held_by: str | None = None


@dataclass(frozen=True)
class TouchedHours:
    """Hours, in microseconds, for which a set of segments has rows: by event, by receipt and by watermark stamp."""

    event: frozenset[int] = frozenset()
    receipt: frozenset[int] = frozenset()
    stamp: frozenset[int] = frozenset()

    def __or__(self, other: "TouchedHours") -> "TouchedHours":
        return TouchedHours(self.event | other.event, self.receipt | other.receipt, self.stamp | other.stamp)


@dataclass(frozen=True)
class SourceWatermark:
    """How far one source has come: a namespace and kind, over all shards (T2)."""

    time_us: int
    held_by: str  # the shard, and the source
    is_idle: bool  # no producer has sent for its idle timeout, by the clock of the log
    idle_from_us: int | None = None  # unless a write comes before; None if the log does not say


def source_watermarks(last: Iterable[Entry], resets: Sequence[int] = ()) -> dict[str, SourceWatermark]:
    """The watermarks of all sources, given the last segment of each shard, and the resets of the log's clock (C15).

    Time is the log's own: the latest receipt in any of these segments. So the same segments give the same answer at
    any time, and the source that sent last is never idle. A shard in which a source is idle follows the others (T2) and
    does not keep it low; a source that is idle in all is where the slowest shard left it.
    """
    entries = [corrected(entry, resets) for entry in last]
    now_us = max((entry.received_us for entry in entries), default=0)
    found: dict[str, SourceWatermark] = {}
    for name in sorted({name for entry in entries for name in entry.watermarks}):
        seen = [entry for entry in entries if name in entry.watermarks]
        active = [entry for entry in seen if entry.idle_from.get(name, now_us + 1) > now_us]
        lowest = min(active or seen, key=lambda entry: (entry.watermarks[name], entry.shard))
        found[name] = SourceWatermark(
            lowest.watermarks[name],
            f"shard {lowest.shard}, {name}",
            is_idle=not active,
            idle_from_us=max((entry.idle_from[name] for entry in seen if name in entry.idle_from), default=None),
        )
    return found


def least(watermarks: Iterable[SourceWatermark]) -> Watermark:
    """The lowest watermark. Idle sources do not count, unless there are no others (T3)."""
    found = list(watermarks)
    counted = [each for each in found if not each.is_idle] or found
    ranked = [(each.time_us, each.held_by) for each in counted]
    return Watermark(*min(ranked)) if ranked else Watermark()


class Log:
    """The sealed segments of all shards, as they are now. Entries are read on demand, and not kept."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._manifests = {shard: Manifest(home.segments(shard)) for shard in range(home.settings.shards)}

    @property
    def sealed(self) -> dict[int, int]:
        """Shard → first epoch that is not sealed."""
        return {shard: manifest.to_epoch for shard, manifest in self._manifests.items()}

    def has_beyond(self, upto: Mapping[int, int]) -> bool:
        """Whether anything is sealed after `upto`."""
        return any(manifest.to_epoch > upto.get(shard, 1) for shard, manifest in self._manifests.items())

    def refuse_unless_reaching(self, upto: Mapping[int, int]) -> None:
        """Raise if the manifest no longer reaches as far as `upto`."""
        for shard, manifest in self._manifests.items():
            limit = upto.get(shard, 1)
            if manifest.to_epoch < limit:
                raise NotRetainedError(
                    f"Shard {shard}: epochs up to {limit - 1} are committed, but {manifest.directory} names "
                    f"segments only up to {manifest.to_epoch - 1}. Restore the manifest and the segments from a backup."
                )

    def below(self, upto: Mapping[int, int], after: Mapping[int, int] | None = None) -> Iterator[Entry]:
        """The segments before `upto`, in order, read one by one; with `after`, only those from there on."""
        self.refuse_unless_reaching(upto)
        epochs = {shard: ((after or {}).get(shard, 1), upto.get(shard, 1)) for shard in self._manifests}
        return (entry for entry in self.within(epochs) if entry.to_epoch <= upto.get(entry.shard, 1))

    def beyond(self, upto: Mapping[int, int]) -> Iterator[Entry]:
        """All segments after `upto`, in order, read one by one."""
        return self.within(
            {shard: (upto.get(shard, 1), manifest.to_epoch) for shard, manifest in self._manifests.items()}
        )

    def by_age(self, upto: Mapping[int, int]) -> Iterator[Entry]:
        """The same, by the time at which they were sealed, but never against their order within a shard."""
        shards = (_timed(manifest.since(upto.get(shard, 1))) for shard, manifest in self._manifests.items())
        return (entry for _, entry in merge(*shards, key=lambda each: (each[0], each[1].shard, each[1].number)))

    def within(self, epochs: Mapping[int, tuple[int, int]]) -> Iterator[Entry]:
        """The segments with epochs of these ranges, shard by shard; read on demand."""
        return (
            entry
            for shard, manifest in self._manifests.items()
            if shard in epochs
            for entry in manifest.between(*epochs[shard])
        )

    def totals(self, upto: Mapping[int, int]) -> Iterator[Totals]:
        """The totals of the segments before `upto`, shard by shard."""
        self.refuse_unless_reaching(upto)
        return (
            manifest.totals_of(manifest.up_to(upto.get(shard, 1) - 1)) for shard, manifest in self._manifests.items()
        )

    def entries_of(self, *plans: Plan) -> Iterator[Entry]:
        """The manifest's entries for the segments of plans; raises if they are no longer the planned ones.

        Plans name the segments of each shard in their order, so one pass over each manifest serves them all.
        """
        readers: dict[int, Iterator[Entry]] = {}
        for plan in plans:
            for segment in plan.segments:
                if segment.shard not in readers:
                    manifest = self._manifests.get(segment.shard)
                    entries = manifest.numbered(segment.number, manifest.count + 1) if manifest else iter(())
                    readers[segment.shard] = entries
                found = next(readers[segment.shard], None)
                if found is None or (found.number, found.sha256) != (segment.number, segment.sha256):
                    raise _not_planned(segment, plan.number, found)
                yield found

    def batches_of(self, entry: Entry) -> list[BatchRecord]:
        """The batches that a segment records."""
        from tidemark.log.segments import read_batches

        return read_batches(self._home.segments(entry.shard), entry)

    def segment_before(self, shard: int, epoch: int) -> tuple[int, str] | None:
        """Number and checksum of the segment that ends right before an epoch; None if there is none."""
        manifest = self._manifests.get(shard)
        entry = manifest.up_to(epoch - 1) if manifest else None
        return (entry.number, entry.sha256) if entry else None

    def verify(self, entries: Iterable[Entry]) -> list[Path]:
        """Paths of segments, each verified byte by byte."""
        return [verify_segment(self._home.segments(entry.shard), entry) for entry in entries]

    def sources(self, upto: Mapping[int, int]) -> dict[str, SourceWatermark]:
        """How far each source had come when everything before `upto` was sealed, by `namespace/kind`."""
        self.refuse_unless_reaching(upto)
        last = (manifest.up_to(upto.get(shard, 1) - 1) for shard, manifest in self._manifests.items())
        return source_watermarks([entry for entry in last if entry], read_resets(self._home))

    def watermark(self, upto: Mapping[int, int]) -> Watermark:
        """The least over all sources; idle ones do not count (T3)."""
        return least(self.sources(upto).values())


def _timed(entries: Iterable[Entry]) -> Iterator[tuple[int, Entry]]:
    """Entries of one shard, each with a time that never goes back, even if the clock did."""
    latest = 0
    for entry in entries:
        latest = max(latest, entry.sealed_us)
        yield latest, entry


def _not_planned(segment: PlannedSegment, number: int, found: Entry | None) -> NotRetainedError:
    return NotRetainedError(
        f"Plan {number} names segment {segment.number} of shard {segment.shard} ({segment.file}), but the "
        f"manifest {'names another one in its place' if found else 'does not name it any more'}. "
        "Restore the manifest from a backup."
    )


def touched_hours(entries: Iterable[Entry]) -> TouchedHours:
    """Hours for which the segments have rows; by event only hours with accepted deltas: only these are in `deltas`."""
    event, receipt, stamp = set[int](), set[int](), set[int]()
    for entry in entries:
        event |= {hour_start(key) for key, counts in entry.event_hours.items() if key and counts.accepted}
        receipt |= {hour_start(key) for key in entry.receipt_hours if key}
        stamp |= {hour_start(key) for key in entry.stamp_hours if key}
    return TouchedHours(frozenset(event), frozenset(receipt), frozenset(stamp))
