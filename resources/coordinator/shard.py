"""One shard: a single writer that numbers writes, logs them in groups and seals the log (C1, C2, C3, C7).

Belongs here: threads, order and waiting. A write is numbered on the caller's thread; the writer thread takes all that
is waiting as one group, decides on it (`arrival.py`), logs it with one sync (`log.py`), then tells the waiters. While
it waits for the disk the next group gathers. Closed log files are sealed on a third thread (`seal.py`).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
from filelock import FileLock, Timeout

from resources.coordinator.arrival import NumberedWrite
from resources.coordinator.bounds import GROUP_BYTES, QUEUE_BYTES, WRITE_BYTES, measure
from resources.coordinator.control import Control, Lost, ProducerOpened, encode_control
from resources.coordinator.decode import Sent
from resources.coordinator.disk import Disk
from resources.coordinator.errors import (
    EmptyWriteError,
    EpochLostError,
    EpochNotAssignedError,
    LogDamageError,
    OutcomeUnknownError,
    ShardBusyError,
    ShardStoppedError,
    WaitTimeoutError,
    WriteTooLargeError,
)
from resources.coordinator.frames import FrameKind, Header
from resources.coordinator.handles import WriteHandle
from resources.coordinator.log import LogFile
from resources.coordinator.lookup import FirstEpochs
from resources.coordinator.model import Level
from resources.coordinator.producers import Producers
from resources.coordinator.recovery import ShardFiles, recover
from resources.coordinator.seal import Sealer, read_log
from resources.coordinator.state import RESERVATION_FILE, STATE_FILE, Reservation, ShardState, save
from resources.failpoints import reach
from resources.settings import Settings

Clock = Callable[[], int]

# Epochs set aside with one sync; what a crash leaves unused of them is logged as lost.
RESERVED_AHEAD = 1_000
# How often a waiter for `durable` looks at the table: a look costs milliseconds, a commit takes seconds.
DURABLE_POLL_SECONDS = 0.2


class _Queued(NamedTuple):
    write: NumberedWrite
    handle: WriteHandle
    size: int  # bytes


class _Asked(NamedTuple):
    """Somebody waits until everything before this in the queue is logged and, if wanted, sealed."""

    done: Future[None]
    wants_seal: bool


_Item = _Queued | Control | _Asked


class Shard:
    """The writer of one shard. Use as a context manager; leaving it drains, flushes, seals and stops (C10)."""

    def __init__(
        self, files: ShardFiles, settings: Settings, clock: Clock, disk: Disk, durable_epoch: Callable[[], int]
    ) -> None:
        self.number = files.shard
        self._files, self._settings, self._clock, self._disk = files, settings, clock, disk
        self._durable_epoch = durable_epoch
        self._process_lock = _lock_process(files)
        try:
            found = recover(disk, files, settings, clock(), durable_epoch())
        except BaseException:
            self._process_lock.release()
            raise
        self._incarnation, self._next_file = found.incarnation, found.next_file
        self._next_epoch = self._reserved_to = found.next_epoch
        # When the last write was numbered, and when the last write in the log was.
        self._last_received_us = self._logged_received_us = found.last_received_us
        self._arrivals = found.arrivals
        # Two views of the producers: what has been numbered, and what is in the log. Only the second may be saved.
        self._numbered, self._logged = found.producers, Producers(found.producers.snapshot())
        self._lost = [span for entry in found.manifest.entries for span in entry.lost] + (
            [found.lost] if found.lost else []
        )
        self._manifest = found.manifest
        self._first_epochs = FirstEpochs(found.manifest)
        self._changed = threading.Condition()
        self._queue: deque[_Item] = deque()
        self._queued_bytes = 0
        self._in_hand: list[_Item] = []  # taken from the queue and not yet done with
        self._flushed_epoch = found.next_epoch - 1
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._file = self._begin_file([Lost(*found.lost)] if found.lost else [])
        self._sealing = ThreadPoolExecutor(1, thread_name_prefix=f"seal-{self.number}")
        self._sealed: Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"shard-{self.number}", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Shard":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @property
    def applied_epoch(self) -> int:
        """Last epoch that was given out; 0 if none."""
        return self._next_epoch - 1

    @property
    def flushed_epoch(self) -> int:
        """Last epoch that is in the log and on the disk."""
        return self._flushed_epoch

    def open_producer(self, producer: str) -> tuple[int, int]:
        """A new instance of a producer, and the last sequence taken from it; older instances are fenced out."""
        asked = _Asked(Future(), wants_seal=False)
        with self._changed:
            self._refuse_if_stopped()
            instance = self._numbered.open(producer)
            mark = self._numbered.mark(producer)
            self._queue.extend((ProducerOpened(producer, instance), asked))
            self._changed.notify_all()
        asked.done.result()
        return instance, mark

    def write(
        self, producer: str, instance: int, sequence: int, deltas: Sequence[Sent] | pa.RecordBatch
    ) -> WriteHandle:
        """Number a write and hand it to the writer thread; a retry gets the epoch of the first time (Q2)."""
        if not len(deltas):
            raise EmptyWriteError
        size = measure(deltas)
        if size > WRITE_BYTES:
            raise WriteTooLargeError(size, WRITE_BYTES)
        with self._changed:
            self._changed.wait_for(lambda: self._queued_bytes < QUEUE_BYTES or self._failure or self._is_stopping)
            self._refuse_if_stopped()
            if self._numbered.is_retry(producer, instance, sequence):
                epoch = self._numbered.recent_epoch(producer, sequence) or self._first_epochs.find(producer, sequence)
                return WriteHandle(self.number, epoch, sequence, True, self._wait)
            epoch = self._take_epoch()
            self._numbered.taken(producer, sequence, epoch)
            self._last_received_us = max(self._last_received_us, self._clock())
            handle = WriteHandle(self.number, epoch, sequence, False, self._wait)
            write = NumberedWrite(epoch, producer, sequence, self._last_received_us, deltas)
            self._queue.append(_Queued(write, handle, size))
            self._queued_bytes += size
            self._changed.notify_all()
            return handle

    def flush(self, epoch: int | None = None, level: Level = Level.FLUSHED, timeout: float | None = None) -> None:
        """Return when `epoch` (default: the last one given out) has reached `level` (C6)."""
        self._wait(self.applied_epoch if epoch is None else epoch, level, timeout)

    def seal(self) -> None:
        """Seal everything flushed so far into segments, and return when the manifest names them."""
        asked = _Asked(Future(), wants_seal=True)
        with self._changed:
            self._refuse_if_stopped()
            self._queue.append(asked)
            self._changed.notify_all()
        asked.done.result()

    def shutdown(self) -> None:
        """Drain the queue, flush, seal, stop, and let go of the shard (C10)."""
        with self._changed:
            if self._is_stopping:
                return
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._sealing.shutdown()
        if self._failure is None:
            save(self._disk, self._files.log / RESERVATION_FILE, Reservation(self._next_epoch, self._incarnation))
        self._process_lock.release()
        if self._failure is not None:
            raise ShardStoppedError(
                self.number, f"it failed before it was shut down: {self._failure}"
            ) from self._failure

    def _take_epoch(self) -> int:
        if self._next_epoch >= self._reserved_to:
            # On the disk before the first of them is given out: an epoch that somebody has seen is never used again.
            reserved_to = self._next_epoch + RESERVED_AHEAD
            save(self._disk, self._files.log / RESERVATION_FILE, Reservation(reserved_to, self._incarnation))
            self._reserved_to = reserved_to
        self._next_epoch += 1
        return self._next_epoch - 1

    def _refuse_if_stopped(self) -> None:
        if self._failure is not None:
            raise ShardStoppedError(self.number, f"{self._failure}. Start it again to recover.") from self._failure
        if self._is_stopping:
            raise ShardStoppedError(self.number, "it is shutting down.")

    def _wait(self, epoch: int, level: Level, timeout: float | None) -> None:
        if epoch > self.applied_epoch:
            raise EpochNotAssignedError(epoch, self.applied_epoch)
        if any(begin <= epoch < end for begin, end in self._lost):
            raise EpochLostError(epoch)
        if level is Level.APPLIED:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            if not self._changed.wait_for(lambda: self._flushed_epoch >= epoch or self._failure, timeout):
                raise WaitTimeoutError(epoch, level.name.lower(), timeout or 0.0)
            if self._flushed_epoch < epoch:
                raise OutcomeUnknownError(epoch, self._failure or ShardStoppedError(self.number, "it stopped."))
        if level is Level.DURABLE:
            self._wait_durable(epoch, deadline, timeout)

    def _wait_durable(self, epoch: int, deadline: float | None, timeout: float | None) -> None:
        if epoch >= self._manifest.to_epoch and not self._is_stopping:
            self.seal()
        while self._durable_epoch() < epoch:
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeoutError(epoch, "durable", timeout or 0.0)
            time.sleep(DURABLE_POLL_SECONDS)

    # From here on: the writer thread.

    def _run(self) -> None:
        try:
            while (items := self._next_items()) is not None:
                self._process(items)
            self._close_file()
            self._wait_for_sealing()
        except BaseException as error:  # noqa: BLE001 - whatever it is, waiters must hear of it and nothing may be written after it
            self._fail(error)

    def _next_items(self) -> list[_Item] | None:
        """What to do next, as one group; an empty list when only time has passed; None at the end."""
        with self._changed:
            if not self._queue and not self._is_stopping:
                self._changed.wait(self._settings.segment_age_ms / 1_000)
            if not self._queue:
                return None if self._is_stopping else []
            items: list[_Item] = []
            size = 0
            while self._queue and size < GROUP_BYTES:
                item = self._queue.popleft()
                items.append(item)
                size += item.size if isinstance(item, _Queued) else 0
            self._queued_bytes -= size
            self._in_hand = items
            self._changed.notify_all()
            return items

    def _process(self, items: list[_Item]) -> None:
        if self._clock() - self._file.header.created_us >= self._settings.segment_age_ms * 1_000:
            self._roll()
        writes = [item for item in items if isinstance(item, _Queued)]
        if writes:
            self._log_writes(writes)
        for item in items:
            if isinstance(item, ProducerOpened):
                self._append(FrameKind.CONTROL, 0, 0, encode_control(item))
                self._logged.reopened(item.producer, item.instance)
        for item in items:
            if isinstance(item, _Asked):
                if item.wants_seal:
                    self._roll()
                    self._wait_for_sealing()
                item.done.set_result(None)
        self._in_hand = []

    def _log_writes(self, queued: list[_Queued]) -> None:
        batch, outcomes = self._arrivals.decide([item.write for item in queued])
        first, last = queued[0].write.epoch, queued[-1].write.epoch
        self._append(FrameKind.WRITES, first, last, memoryview(batch.serialize()))
        for item in queued:
            self._logged.taken(item.write.producer, item.write.sequence, item.write.epoch)
        self._logged_received_us = queued[-1].write.received_us
        with self._changed:
            for item, outcome in zip(queued, outcomes, strict=True):
                item.handle.outcome = outcome
            self._flushed_epoch = last
            self._changed.notify_all()

    def _append(self, kind: FrameKind, first: int, last: int, payload: bytes | memoryview) -> None:
        if self._file.end + len(payload) > self._settings.segment_bytes:
            self._roll()
        self._file.append(kind, first, last, payload)

    def _begin_file(self, messages: list[Control]) -> LogFile:
        header = Header(self.number, self._next_file, self._incarnation, self._flushed_epoch + 1, self._clock())
        file = LogFile(self._disk, self._files.log, header, self._settings.segment_bytes)
        self._next_file += 1
        for message in messages:
            file.append(FrameKind.CONTROL, 0, 0, encode_control(message))
        return file

    def _roll(self) -> None:
        """Have the file that is being written sealed, and begin the next; a file without writes just goes on."""
        if self._file.last_epoch:
            self._close_file()
            self._file = self._begin_file([])

    def _close_file(self) -> None:
        closed = self._file
        closed.close()
        state = ShardState(
            next_file=closed.header.number + 1,
            last_received_us=self._logged_received_us,
            producers=self._logged.snapshot(),
            watermarks=self._arrivals.watermarks.snapshot(),
        )
        watermarks = self._arrivals.watermarks.current()
        self._wait_for_sealing()
        self._sealed = self._sealing.submit(self._seal_file, closed, state, watermarks)

    def _wait_for_sealing(self) -> None:
        if self._sealed is not None:
            self._sealed.result()

    def _seal_file(self, closed: LogFile, state: ShardState, watermarks: dict[str, int]) -> None:
        content = read_log(self._disk, closed.path)
        if content is None:
            raise LogDamageError(f"{closed.path} has lost its header since it was written. Restore it from a backup.")
        Sealer(self._disk, self._files.segments, self._manifest).seal(content, watermarks, self._clock())
        save(self._disk, self._files.log / STATE_FILE, state)
        self._disk.remove(closed.path)
        reach("seal.log_removed")

    def _fail(self, error: BaseException) -> None:
        """Stop for good: an fsync is never repeated, and nothing may be written behind a hole (C3, C7)."""
        with self._changed:
            self._failure = error
            for item in (*self._in_hand, *self._queue):
                if isinstance(item, _Asked) and not item.done.done():
                    item.done.set_exception(ShardStoppedError(self.number, f"{error}. Start it again to recover."))
            self._queue.clear()
            self._changed.notify_all()


def _lock_process(files: ShardFiles) -> FileLock:
    files.log.mkdir(parents=True, exist_ok=True)
    # Whoever shuts the shard down need not be the thread that opened it.
    lock = FileLock(files.log / "writer.lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ShardBusyError(files.shard, files.log / "writer.lock") from None
    return lock
