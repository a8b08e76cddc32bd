"""The sealed log as the batch plane sees it: manifests, and the segments that they name.

Belongs here: which segments lie where, whether they are what was sealed, which hours they touch, and how far the
watermark has got. Does not belong here: anything that needs Spark, and anything that writes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from resources.coordinator.clock_reset import corrected, read_resets
from resources.coordinator.manifest import Entry, Manifest, verify_segment
from resources.home import Home
from resources.plans import NotRetainedError, Plan, PlannedSegment
from resources.timegrid import hour_start


@dataclass(frozen=True)
class Watermark:
    """How far event time has got, and which shard and stream holds it there; nothing while no stream has one."""

    time_us: int | None = None
    held_by: str | None = None


@dataclass(frozen=True)
class TouchedHours:
    """Hours, in microseconds, that a set of segments has rows for: by event, by receipt and by watermark stamp."""

    event: frozenset[int] = frozenset()
    receipt: frozenset[int] = frozenset()
    stamp: frozenset[int] = frozenset()

    def __or__(self, other: "TouchedHours") -> "TouchedHours":
        return TouchedHours(self.event | other.event, self.receipt | other.receipt, self.stamp | other.stamp)


@dataclass(frozen=True)
class SourceMark:
    """How far one source has come: a namespace and kind, over all shards (T2)."""

    time_us: int
    held_by: str  # the shard, and the source
    is_idle: bool  # nobody has sent for its idle timeout, by the clock of the log
    idle_from_us: int | None = None  # unless it is heard before; none where the log does not say


def source_marks(last: Iterable[Entry], resets: Sequence[int] = ()) -> dict[str, SourceMark]:
    """The marks of all sources, given the last segment of each shard, and the resets of the log's clock (C15).

    Time is what the log says: the latest receipt in any of these segments. So the same segments give the same answer
    whenever they are looked at, and whoever was heard last is never idle. A shard in which a source is idle follows the
    others (T2) and does not hold it back; one that is idle in all is where the slowest of them left it.
    """
    entries = [corrected(entry, resets) for entry in last]
    now_us = max((entry.received_us for entry in entries), default=0)
    found: dict[str, SourceMark] = {}
    for name in sorted({name for entry in entries for name in entry.watermarks}):
        seen = [entry for entry in entries if name in entry.watermarks]
        active = [entry for entry in seen if entry.idle_from.get(name, now_us + 1) > now_us]
        holder = min(active or seen, key=lambda entry: (entry.watermarks[name], entry.shard))
        found[name] = SourceMark(
            holder.watermarks[name],
            f"shard {holder.shard}, {name}",
            is_idle=not active,
            idle_from_us=max((entry.idle_from[name] for entry in seen if name in entry.idle_from), default=None),
        )
    return found


def least(marks: Iterable[SourceMark]) -> Watermark:
    """The one that holds the others back. Idle ones do not count, unless there are no others (T3)."""
    found = list(marks)
    counted = [mark for mark in found if not mark.is_idle] or found
    held = [(mark.time_us, mark.held_by) for mark in counted]
    return Watermark(*min(held)) if held else Watermark()


class Log:
    """The sealed segments of all shards, as they are now."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._manifests = {shard: Manifest(home.segments(shard)) for shard in range(home.settings.shards)}

    @property
    def sealed(self) -> dict[int, int]:
        """Shard → first epoch that is not sealed."""
        return {shard: manifest.to_epoch for shard, manifest in self._manifests.items()}

    def below(self, upto: Mapping[int, int]) -> list[Entry]:
        """All segments that lie before `upto`, in order; refused when the manifest does not reach that far any more."""
        found: list[Entry] = []
        for shard, manifest in self._manifests.items():
            limit = upto.get(shard, 1)
            if manifest.to_epoch < limit:
                raise NotRetainedError(
                    f"Shard {shard}: epochs up to {limit - 1} are committed, but {manifest.directory} names "
                    f"segments only up to {manifest.to_epoch - 1}. Restore the manifest and the segments from a backup."
                )
            found.extend(entry for entry in manifest.entries if entry.to_epoch <= limit)
        return found

    def beyond(self, upto: Mapping[int, int]) -> list[Entry]:
        """All segments after `upto`, in order."""
        return [
            entry
            for shard, manifest in self._manifests.items()
            for entry in manifest.entries
            if entry.from_epoch >= upto.get(shard, 1)
        ]

    def entries_of(self, plan: Plan) -> list[Entry]:
        """The manifest's entries for the segments of a plan, which must still be the ones that were planned."""
        return [self._entry_of(segment, plan.number) for segment in plan.segments]

    def verify(self, entries: Iterable[Entry]) -> list[Path]:
        """Paths of segments, each proved byte by byte to be what was sealed."""
        return [verify_segment(self._home.segments(entry.shard), entry) for entry in entries]

    def sources(self, upto: Mapping[int, int]) -> dict[str, SourceMark]:
        """How far each source had come when everything before `upto` was sealed, by `namespace/kind`."""
        return source_marks({entry.shard: entry for entry in self.below(upto)}.values(), read_resets(self._home))

    def watermark(self, upto: Mapping[int, int]) -> Watermark:
        """The minimum over all sources; those that are idle do not count (T3)."""
        return least(self.sources(upto).values())

    def _entry_of(self, segment: PlannedSegment, number: int) -> Entry:
        entries = self._manifests[segment.shard].entries if segment.shard in self._manifests else []
        found = entries[segment.number - 1] if segment.number <= len(entries) else None
        if found is None or found.sha256 != segment.sha256:
            raise NotRetainedError(
                f"Plan {number} names segment {segment.number} of shard {segment.shard} ({segment.file}), but the "
                f"manifest {'names another one in its place' if found else 'does not name it any more'}. "
                "Restore the manifest from a backup."
            )
        return found


def touched_hours(entries: Iterable[Entry]) -> TouchedHours:
    """Hours that the segments have rows for; by event only those with accepted deltas: only these are in `deltas`."""
    event, receipt, stamp = set[int](), set[int](), set[int]()
    for entry in entries:
        event |= {hour_start(key) for key, counts in entry.event_hours.items() if key and counts.accepted}
        receipt |= {hour_start(key) for key in entry.receipt_hours if key}
        stamp |= {hour_start(key) for key in entry.stamp_hours if key}
    return TouchedHours(frozenset(event), frozenset(receipt), frozenset(stamp))
