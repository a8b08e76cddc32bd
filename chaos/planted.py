"""Bugs that are planted on purpose: each must be found by the checker, or the checker is worth nothing.

Belongs here: patches of the product, in force only inside a `with`, in this process. Each is a mistake that has been
made in earnest, somewhere. None of them can be switched on from outside the harness.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from chaos.planted_clock import leap_not_bridged, leap_not_noticed, leap_not_refused, reset_by_half, reset_not_logged
from chaos.planted_limits import cut_behind_flushed, cut_behind_lost, cut_for_all, cut_forgotten, earliest_forgotten
from chaos.planted_producers import (
    digest_of_group,
    fence_open,
    gap_taken,
    ledger_not_synced,
    ledger_too_old,
    ledger_without_ancestors,
    mark_lost,
    reuse_taken_as_retry,
)
from chaos.planted_public import (
    columns_kept,
    columns_not_looked_at,
    columns_refused_whole,
    fence_not_asked,
    frame_unbounded,
    objects_kept,
    poison_measured,
    poison_shown,
    producer_unlocked,
)
from tidemark.coordinator import core, flusher
from tidemark.coordinator.core import ShardCore
from tidemark.coordinator.engine import Engine, Group
from tidemark.coordinator.epochs import Epochs
from tidemark.coordinator.flusher import LogFlusher, LogSnapshot
from tidemark.coordinator.queue import FairQueue
from tidemark.delivery.batching import Batch
from tidemark.event_time.watermarks import Watermarks
from tidemark.log import frames, groups, manifest
from tidemark.log.control import Lost, RulesInForce
from tidemark.log.groups import encode_group
from tidemark.log.log_file import LogFile
from tidemark.log.log_rows import LogRows
from tidemark.log.segments import Census
from tidemark.shard_state import recovery
from tidemark.shard_state.recovery import Recovered, recover
from tidemark.storage.disk import RealDisk

Plant = Callable[[], AbstractContextManager[Any]]


class Planted(NamedTuple):
    """One bug, and the rule that it breaks."""

    name: str
    rule: str
    what: str
    plant: Plant
    # Where the search begins. A bug that needs several things at once shows in one seed of a thousand: starting near a
    # known seed saves a minute, and if that seed no longer finds anything, later ones are tried.
    first_seed: int = 0
    is_public: bool = False  # searched at the public API, by `public.py`


def _nothing(*_: Any, **__: Any) -> None:
    """A step that was forgotten."""


# The log.


def _ack_before_fsync() -> AbstractContextManager[Any]:
    return patch.object(RealDisk, "sync", _nothing)


def _no_directory_fsync() -> AbstractContextManager[Any]:
    return patch.object(RealDisk, "sync_directory", _nothing)


def _no_crc() -> AbstractContextManager[Any]:
    return _both(patch.object(frames, "_checksum", lambda *_: 0), _proved_columns())


def _torn_tail_accepted() -> AbstractContextManager[Any]:
    """The checksum covers only the beginning of a frame."""
    whole = frames._checksum

    def short(start: bytes, payload: Sequence[Any], header: Any, offset: int) -> int:
        return whole(start, [bytes(b"".join(bytes(piece) for piece in payload))[:300]], header, offset)

    return _both(patch.object(frames, "_checksum", short), _proved_columns())


def _proved_columns() -> AbstractContextManager[Any]:
    """Without a checksum, reading damaged columns could end the process silently: so they are validated instead."""

    def proved(shard: int, writes: Any, shared: Any, copies: Any, columns: Any) -> LogRows:
        for column in columns.values():
            column.validate(full=True)
        return LogRows(shard, writes, shared, copies, columns)

    return patch.object(groups, "LogRows", proved)


def _fsync_retried() -> AbstractContextManager[Any]:
    def sync(self: RealDisk, fd: int) -> None:
        try:
            self.system.fdatasync(fd)
        except OSError:
            self.system.fdatasync(fd)

    return patch.object(RealDisk, "sync", sync)


def _half_published() -> AbstractContextManager[Any]:
    """Every group becomes two frames, cut through the middle of a write."""
    append = LogFile.append

    def twice(self: LogFile, epochs: tuple[int, int], payload: Sequence[Any]) -> None:
        rows = twice_rows.pop() if twice_rows else None
        if rows is None or rows.rows < 2:
            return append(self, epochs, payload)
        batch, half = rows.batch(), (rows.rows + 1) // 2
        append(self, epochs, encode_group([], LogRows.of(batch.slice(0, half))))
        return append(self, epochs, encode_group(controls.pop(), LogRows.of(batch.slice(half))))

    twice_rows: list[LogRows] = []
    controls: list[Any] = []

    def encode(messages: Any, rows: LogRows | None) -> Any:
        twice_rows[:] = [rows] if rows is not None else []
        controls[:] = [messages]
        return encode_group(messages, rows)

    return _both(patch.object(LogFile, "append", twice), patch.object(flusher, "encode_group", encode))


# Epochs, watermarks, waiters.


def _epochs_restart() -> AbstractContextManager[Any]:
    return patch.object(core, "Epochs", lambda next_epoch, _reserve, ahead: Epochs(next_epoch, _nothing, ahead))


def _hole_passed() -> AbstractContextManager[Any]:
    """A group that could not be written is forgotten, and the next one goes on after it."""
    persist = LogFlusher.persist

    def careless(self: LogFlusher, frozen: Any) -> LogSnapshot:
        try:
            return persist(self, frozen)
        except OSError:
            writes = [write for part in frozen for write in part.writes]
            if writes:
                self._last_epoch = writes[-1].epoch
            return self.snapshot()._replace(digests=(0,) * len(writes), outcomes=(None,) * len(writes))  # type: ignore[arg-type]

    return patch.object(LogFlusher, "persist", careless)


def _released_early() -> AbstractContextManager[Any]:
    """The flushed epoch of a group is one too high whenever another write was taken after it."""
    publish = Engine.publish

    def early(self: Engine[Any, Any, Any], group: Group[Any, Any], snapshot: Any) -> None:
        if self.applied_epoch > group.last_epoch:
            group, snapshot = (
                group._replace(last_epoch=group.last_epoch + 1),
                snapshot._replace(epoch=snapshot.epoch + 1),
            )
        publish(self, group, snapshot)

    return patch.object(Engine, "publish", early)


def _snapshot_after_watermark() -> AbstractContextManager[Any]:
    publish = Engine.publish

    def turned_round(self: Engine[Any, Any, Any], group: Group[Any, Any], snapshot: Any) -> None:
        self.flushed_epoch = group.last_epoch
        publish(self, group, snapshot)

    return patch.object(Engine, "publish", turned_round)


def _lost_not_recorded() -> AbstractContextManager[Any]:
    return patch.object(Census, "gaps", lambda *_: [])


# Starting again.


def _segment_not_synced() -> AbstractContextManager[Any]:
    """A segment is written at a start and while running without waiting for the disk."""

    def replace(self: RealDisk, path: Path, data: bytes | memoryview) -> None:
        if path.name.endswith(".sealing"):
            with patch.object(self.system, "fsync", _nothing):
                whole(self, path, data)
        else:
            whole(self, path, data)

    whole = RealDisk.replace
    return patch.object(RealDisk, "replace", replace)


def _tail_not_persisted() -> AbstractContextManager[Any]:
    """Data read at a start counts as durable, though it may be in the cache only."""
    return patch.object(recovery, "_make_certain", _nothing)


def _tail_not_cut() -> AbstractContextManager[Any]:
    """A torn tail stays after the last frame, and the next file follows it."""
    return patch.object(recovery, "_copy", lambda disk, path, content: disk.replace(path, content.data))


def _tail_cut_in_cache() -> AbstractContextManager[Any]:
    """The file without its torn end is not synced, so a power cut loses its replacement."""

    def unsynced(disk: RealDisk, path: Path, content: Any) -> None:
        with patch.object(disk.system, "fsync", _nothing):
            copied(disk, path, content)

    copied = recovery._copy
    return patch.object(recovery, "_copy", unsynced)


def _found(change: Callable[[Recovered], Recovered]) -> AbstractContextManager[Any]:
    """A start that finds something else than there is."""
    return patch.object(core, "recover", lambda *arguments: change(recover(*arguments)))


def _state_ahead() -> AbstractContextManager[Any]:
    """With the first file that is sealed, the state at the end of the last one is saved."""
    return _found(
        lambda found: found._replace(
            unsealed=[closed._replace(state=found.unsealed[-1].state) for closed in found.unsealed]
        )
    )


def _sealed_backwards() -> AbstractContextManager[Any]:
    return _found(lambda found: found._replace(unsealed=found.unsealed[::-1]))


def _unsealed_passed_over() -> AbstractContextManager[Any]:
    """Only the last file that was found is sealed, as if there could be only one."""
    return _found(lambda found: found._replace(unsealed=found.unsealed[-1:]))


def _lost_in_log_forgotten() -> AbstractContextManager[Any]:
    """Epochs that were lost between two files that are not sealed yet are taken for writes."""
    return _found(
        lambda found: found._replace(
            lost=[(message.from_epoch, message.to_epoch) for message in found.opening if isinstance(message, Lost)]
        )
    )


def _manifest_not_synced() -> AbstractContextManager[Any]:
    append = RealDisk.append

    def unsynced(self: RealDisk, path: Path, data: bytes) -> None:
        with patch.object(self.system, "fsync", _nothing):
            append(self, path, data)

    return patch.object(RealDisk, "append", unsynced)


def _identities_forgotten() -> AbstractContextManager[Any]:
    return patch.object(recovery, "_remember_segments", _nothing)


def _watermarks_forgotten() -> AbstractContextManager[Any]:
    return patch.object(recovery, "Watermarks", lambda settings, *_: Watermarks(settings))


def _rules_forgotten() -> AbstractContextManager[Any]:
    """The log is read again under other rules than those it was written under."""
    apply = Watermarks.apply

    def without_rules(self: Watermarks, message: Any) -> None:
        if not isinstance(message, RulesInForce):
            apply(self, message)

    return patch.object(Watermarks, "apply", without_rules)


def _log_removed_first() -> AbstractContextManager[Any]:
    """The log file goes before the manifest names its segment."""
    append = manifest.Manifest.append

    def late(self: manifest.Manifest, entry: Any, batches: Any) -> Any:
        for name in self._disk.list(Path("/home/log/0")):
            if name.endswith(".log"):
                self._disk.remove(Path("/home/log/0") / name)
                break
        return append(self, entry, batches)

    return patch.object(manifest.Manifest, "append", late)


def _batches_forgotten() -> AbstractContextManager[Any]:
    return patch.object(recovery, "unbatched", lambda *_: iter(()))


# The door.


def _producer_reordered() -> AbstractContextManager[Any]:
    """Priorities choose between writes, not between producers."""
    push = FairQueue.push

    def each_alone(self: FairQueue[Any], producer: str, priority: Any, now_us: int, item: Any) -> None:
        push(self, f"{producer}/{len(self)}/{id(item)}", priority, now_us, item)

    return patch.object(FairQueue, "push", each_alone)


def _bytes_kept() -> AbstractContextManager[Any]:
    def settle(self: ShardCore, batch: Batch) -> None:
        whole(self, batch)
        batch.bytes -= 1

    whole = ShardCore.settle
    return patch.object(ShardCore, "settle", settle)


@contextmanager
def _both(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


PLANTED = (
    Planted("ack_before_fsync", "C7", "a group is acknowledged before it is synced", _ack_before_fsync),
    Planted("no_directory_fsync", "C7", "names are never synced", _no_directory_fsync),
    Planted("no_crc", "C7", "frames have no checksum", _no_crc),
    Planted("torn_tail_accepted", "C7", "the checksum covers only the start of a frame", _torn_tail_accepted),
    Planted("fsync_retried", "C7", "a sync that failed is tried again", _fsync_retried),
    Planted("group_half_published", "C7", "a group is cut into two frames", _half_published),
    Planted("epochs_restart", "C7", "epochs are not reserved ahead", _epochs_restart),
    Planted("hole_passed", "C3", "a group that could not be written is passed over", _hole_passed),
    Planted("waiter_released_early", "C6", "a waiter is released one write too early", _released_early),
    Planted("snapshot_after_watermark", "C6", "the watermark moves before the snapshot", _snapshot_after_watermark),
    Planted("lost_not_recorded", "C7", "lost epochs are not recorded", _lost_not_recorded),
    Planted("segment_not_synced", "C7", "a segment is not synced before it is named", _segment_not_synced),
    Planted("tail_not_persisted", "C7", "a start does not make durable what it read", _tail_not_persisted),
    Planted("tail_not_cut", "C7", "a start leaves a torn end before its own file", _tail_not_cut),
    Planted("tail_cut_in_cache", "C7", "a torn end is cut, and that is not synced", _tail_cut_in_cache),
    Planted("state_ahead", "C7", "the state saved with a sealed file knows of later ones", _state_ahead, 1_230),
    Planted("sealed_backwards", "C7", "files found at a start are sealed in the wrong order", _sealed_backwards),
    Planted("unsealed_passed_over", "C7", "of the files found at a start, one is sealed", _unsealed_passed_over),
    Planted("lost_in_log_forgotten", "C6", "epochs lost between unsealed files count as there", _lost_in_log_forgotten),
    Planted("manifest_not_synced", "C7", "a manifest entry is not synced", _manifest_not_synced),
    Planted("log_removed_first", "C7", "the log goes before the manifest has its segment", _log_removed_first),
    Planted("mark_lost", "Q2", "a restart forgets the producers' marks", mark_lost),
    Planted("ledger_too_old", "Q2", "a sealed log file takes its producers' marks with it", ledger_too_old),
    Planted("ledger_unconnected", "Q2", "a producer's state forgets the files before", ledger_without_ancestors),
    Planted("ledger_not_synced", "C7", "the ledger of producers is not synced", ledger_not_synced),
    Planted("number_reused", "Q2", "another write under a used number is answered as a retry", reuse_taken_as_retry),
    Planted("digest_of_group", "Q2", "a retry is taken for another write because its neighbours are", digest_of_group),
    Planted("identities_forgotten", "Q3", "a restart forgets identities", _identities_forgotten),
    Planted("earliest_forgotten", "D9", "a sealed log file takes the earliest event time with it", earliest_forgotten),
    Planted("cut_forgotten", "K4", "a restart passes over the cuts that it finds in the log", cut_forgotten),
    Planted("cut_for_all", "D9", "a cut of vectors also refuses other kinds", cut_for_all),
    Planted("cut_behind_flushed", "K4", "a cut does not count writes on their way to the disk", cut_behind_flushed),
    Planted("cut_behind_lost", "K4", "a cut waits for epochs that were lost before it", cut_behind_lost),
    Planted("watermarks_forgotten", "T2", "a restart forgets watermarks", _watermarks_forgotten),
    Planted("rules_forgotten", "T2", "a restart reads the log by other rules than it was written by", _rules_forgotten),
    Planted("batches_forgotten", "C5", "a restart forgets rows without a batch", _batches_forgotten),
    Planted("fence_open", "Q2", "older instances may go on writing", fence_open),
    Planted("gap_taken", "Q2", "a gap in the numbers is not noticed", gap_taken),
    Planted("producer_reordered", "Q1", "one producer's writes overtake each other", _producer_reordered),
    Planted("leap_not_noticed", "C15", "the wall clock is believed whatever it says", leap_not_noticed),
    Planted("leap_not_bridged", "C15", "during a leap all but writes go by the wall clock", leap_not_bridged),
    Planted("leap_not_refused", "C15", "writes are taken while the clock is wrong", leap_not_refused),
    Planted("reset_by_half", "C15", "a reset of the clock leaves watermarks ahead", reset_by_half),
    Planted("reset_not_logged", "C15", "a reset of the clock is in memory only", reset_not_logged, first_seed=300),
    Planted("bytes_kept", "C8", "a closed batch gives back less than it took", _bytes_kept),
    Planted("objects_kept", "C14", "a caller's objects are read when they are flushed", objects_kept, is_public=True),
    Planted("columns_kept", "C14", "a caller's array is read when it is flushed", columns_kept, is_public=True),
    Planted("producer_unlocked", "Q2", "threads of a producer use a number twice", producer_unlocked, is_public=True),
    Planted("fence_not_asked", "C14", "a process that was taken over from goes on", fence_not_asked, is_public=True),
    Planted("frame_unbounded", "C14", "a frame is written that cannot be read", frame_unbounded, is_public=True),
    Planted("poison_measured", "C14", "an object that raises raises at the door", poison_measured, is_public=True),
    Planted("columns_refused_whole", "C14", "one row refuses a table", columns_refused_whole, is_public=True),
    Planted("columns_not_looked_at", "Q3", "columns take what rows refuse", columns_not_looked_at, is_public=True),
    Planted("poison_shown", "C14", "an object that raises stops the writer", poison_shown, is_public=True),
)
