"""How far each shard has come, read from the disk without opening the writer.

Belongs here: reading from outside, at any time, also while another process writes. It changes nothing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tidemark.log.control import Control, EarliestRaised, VectorsCut
from tidemark.log.log_content import LogContent, read_log
from tidemark.log.manifest import Entry, Manifest
from tidemark.shard_state.live import LiveStatus, read_live
from tidemark.shard_state.state import STATE_FILE, ShardState, load, read_reservation
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home


class ShardStatus(NamedTuple):
    """One shard, as its files show it."""

    shard: int
    incarnation: int
    applied_epoch: int  # last epoch known to be given out
    flushed_epoch: int  # last epoch in the log
    sealed_epoch: int  # last epoch in a segment
    log_bytes: int  # valid bytes that are not sealed yet
    segments: int
    rows: int
    last_segment: Entry | None
    watermarks: dict[str, int]  # "namespace/kind" → microseconds, as of the last log file that was closed
    live: LiveStatus | None  # what only the running process knows, if there is one


class Cut(NamedTuple):
    """The cut of vectors that is in the log of every shard, and the writes taken before it was there (K4)."""

    cut_us: int
    behind: dict[int, int]  # shard → the last epoch that may have an older change; later ones were refused

    def is_settled(self, durable: Mapping[int, int]) -> bool:
        """Whether older changes have all come as far as these epochs by shard, such as those of a committed plan."""
        return all(durable.get(shard, 0) >= epoch for shard, epoch in self.behind.items())


def read_status(home: Home) -> list[ShardStatus]:
    """The status of every shard that the settings name."""
    return [_shard_status(home, shard) for shard in range(home.settings.shards)]


def read_raised(home: Home) -> int | None:
    """The earliest event time that every shard's log has been raised to; None while one of them has not (R5)."""
    raised = [_raised(home, shard) for shard in range(home.settings.shards)]
    return None if any(each is None for each in raised) else min(each for each in raised if each is not None)


def read_cut(home: Home) -> Cut | None:
    """The cut of vectors that every shard's log has; None while one of them has none (K4)."""
    cuts = {shard: cut for shard in range(home.settings.shards) if (cut := _cut(home, shard)) is not None}
    if len(cuts) < home.settings.shards:
        return None
    return Cut(min(cut.cut_us for cut in cuts.values()), {shard: cut.behind_epoch for shard, cut in cuts.items()})


def _raised(home: Home, shard: int) -> int | None:
    messages, state = _read_log_and_state(home, shard)
    found = [message.earliest_us for message in messages if isinstance(message, EarliestRaised)]
    return max((each for each in (*found, state.earliest_us) if each is not None), default=None)


def _cut(home: Home, shard: int) -> VectorsCut | None:
    messages, state = _read_log_and_state(home, shard)
    found = [message for message in (*messages, state.vectors_cut) if isinstance(message, VectorsCut)]
    # Repeating the same cut changed nothing: the first of them counts.
    return max(found, key=lambda cut: (cut.cut_us, -cut.behind_epoch), default=None)


def _read_log_and_state(home: Home, shard: int) -> tuple[list[Control], ShardState]:
    """All messages in the log of a shard, and its state, which covers those of files that are gone."""
    disk = RealDisk()
    # The files first: if one is sealed meanwhile, the state covers it.
    contents = _log_contents(disk, home.log(shard))
    messages = [message for content in contents for group in content.groups() for message in group.controls]
    return messages, load(disk, home.log(shard) / STATE_FILE, ShardState) or ShardState()


def _log_contents(disk: RealDisk, folder: Path) -> Iterator[LogContent]:
    """The log files of a shard, one after another; without those that the writer seals meanwhile."""
    for name in disk.list(folder):
        if name.endswith(".log"):
            try:
                content = read_log(disk, folder / name)
            except FileNotFoundError:
                continue
            if content is not None:
                yield content


def _shard_status(home: Home, shard: int) -> ShardStatus:
    disk = RealDisk()
    manifest = Manifest(home.segments(shard), disk)
    reservation = read_reservation(disk, home.log(shard))
    state = load(disk, home.log(shard) / STATE_FILE, ShardState) or ShardState()
    sealed = manifest.to_epoch - 1
    flushed, log_bytes = sealed, 0
    for content in _log_contents(disk, home.log(shard)):
        for frame in content.frames:
            if frame.last_epoch > sealed:
                flushed = max(flushed, frame.last_epoch)
                log_bytes += frame.end - frame.offset
    live = read_live(home.log(shard))
    return ShardStatus(
        shard=shard,
        incarnation=reservation.incarnation,
        # Epochs that only the memory of the writer has are seen if it shows itself.
        applied_epoch=max(flushed, live.applied_epoch) if live else flushed,
        flushed_epoch=flushed,
        sealed_epoch=sealed,
        log_bytes=log_bytes,
        segments=manifest.count,
        rows=manifest.totals.rows,
        last_segment=manifest.last,
        watermarks={
            name: stream.watermark_us for name, stream in state.watermarks.items() if stream.watermark_us is not None
        },
        live=live,
    )
