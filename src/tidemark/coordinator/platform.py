"""All shards of a home, and the producer's side: a write is split by shard and numbered for each (Q2).

Belongs here: opening all shards, splitting writes, and combining the answers. What a shard does with its part
is in `shard.py`.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.arrays.memory import keep_memory
from tidemark.coordinator.bounds import RETRY_AFTER_S
from tidemark.coordinator.handles import Receipt, WriteHandle
from tidemark.coordinator.shard import Shard
from tidemark.coordinator.slots import shard_of_slot, slots_of
from tidemark.delivery.batching import Predicate
from tidemark.door.decode import keys_of, to_batch
from tidemark.door.decoded import Deltas as ShardDeltas
from tidemark.door.ownership import as_columns, own, own_columns
from tidemark.door.row_objects import combined, row_objects
from tidemark.event_time.alignment import align, stream_watermarks
from tidemark.event_time.clock import Clock, SteadyClock, steady, system_clock
from tidemark.log.control import TurnedAway
from tidemark.model.deltas import Level, Priority
from tidemark.model.event_time_rules import EventTimeRules, Stream, StreamRule
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.shard_errors import BackpressureError, EmptyWriteError, ShardStoppedError, WriteTooLargeError
from tidemark.model.turned_away import Tally
from tidemark.shard_state.clock_reset import read_resets
from tidemark.shard_state.recovery import ShardFiles
from tidemark.storage.disk import Disk, RealDisk
from tidemark.storage.home import Home
from tidemark.verdicts.delta_hashes import with_hashes

Deltas: TypeAlias = ShardDeltas | pa.Table
Places: TypeAlias = npt.NDArray[np.int64]


class PlatformReceipt(NamedTuple):
    """What became of one write over all shards that it touched."""

    epochs: dict[int, int]  # shard → epoch; without shards that took their part too long ago to remember (Q2)
    level: Level
    is_retry: bool  # every part was taken earlier
    accepted: int
    duplicate: int
    refused: int


class SplitWrite(NamedTuple):
    """A write that was sent: one handle per shard it touches."""

    parts: dict[int, tuple[WriteHandle, ShardDeltas]]

    def wait(self, level: Level = Level.FLUSHED, timeout: float | None = None) -> PlatformReceipt:
        """Return when every part has reached `level`."""
        return _sum_up([handle.wait(level, timeout) for handle, _ in self.parts.values()], level)

    def receipt(self, level: Level) -> PlatformReceipt:
        """What is known of it at a level that every part has reached."""
        if len(self.parts) == 1:  # a single delta, or a single shard
            [(handle, _)] = self.parts.values()
            shard, epoch, _, is_retry, outcome = handle.receipt(level)
            return PlatformReceipt({} if epoch is None else {shard: epoch}, level, is_retry, *outcome)
        return _sum_up([handle.receipt(level) for handle, _ in self.parts.values()], level)


def _sum_up(receipts: list[Receipt], level: Level) -> PlatformReceipt:
    accepted, duplicate, refused = map(sum, zip(*(receipt.outcome for receipt in receipts), strict=True))
    epochs = {receipt.shard: receipt.epoch for receipt in receipts if receipt.epoch is not None}
    return PlatformReceipt(epochs, level, all(receipt.is_retry for receipt in receipts), accepted, duplicate, refused)


# One of the ways into a shard: producer, instance, sequence, part.
Send: TypeAlias = Callable[[Shard, str, int, int, ShardDeltas, Priority], WriteHandle]


class Producer:
    """One instance of a named producer. It numbers its writes, so that sending one again can never count twice.

    Any number of threads may use it: they send one after another, in the order in which they come.
    """

    def __init__(self, platform: "Platform", name: str, from_start: bool) -> None:
        self.name = name
        self._platform = platform
        # Held from the choice of a number until the shard takes it: two writes under one number would be one (Q2).
        self._numbering = threading.Lock()
        opened = {number: shard.open_producer(name) for number, shard in platform.shards.items()}
        self._instances = {number: instance for number, (instance, _) in opened.items()}
        self._sequences = {number: 0 if from_start else mark for number, (_, mark) in opened.items()}

    def write(
        self, deltas: Deltas, *, priority: Priority = Priority.NORMAL, timeout: float | None = None
    ) -> SplitWrite:
        """Send deltas; returns as soon as each part is taken. While there is no room it waits, at most `timeout`.

        The error gives the rest back as `write`; parts that other shards have taken by then stay taken, and are not
        in it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._send_parts(deltas, partial(_write_until, deadline), priority, deadline)

    def try_write(self, deltas: Deltas, *, priority: Priority = Priority.NORMAL) -> SplitWrite:
        """Send deltas if there is room now, and give them back if there is not (C8)."""
        # Another thread that waits for room would keep this one waiting, too.
        return self._send_parts(deltas, Shard.try_write, priority, time.monotonic() + RETRY_AFTER_S)

    def write_durable(self, deltas: Deltas, *, timeout: float | None = None) -> PlatformReceipt:
        """Send deltas, and return when all of them are in the lake."""
        deadline = None if timeout is None else time.monotonic() + timeout
        sent = self.write(deltas, timeout=timeout)
        return sent.wait(Level.DURABLE, None if deadline is None else max(0.0, deadline - time.monotonic()))

    def resend(self, write: SplitWrite) -> SplitWrite:
        """Send a write again under its old numbers, as after a lost answer: it is answered as a retry."""
        return SplitWrite(
            {
                number: (
                    self._platform.shards[number].write(self.name, self._instances[number], handle.sequence, part),
                    part,
                )
                for number, (handle, part) in write.parts.items()
            }
        )

    def _send_parts(self, deltas: Deltas, send: Send, priority: Priority, deadline: float | None) -> SplitWrite:
        parts = self._platform.split(deltas)
        if not self._numbering.acquire(timeout=-1 if deadline is None else max(0.0, deadline - time.monotonic())):
            raise BackpressureError("Another thread of this producer waits for room.", RETRY_AFTER_S, deltas)
        try:
            return self._number_and_send(deltas, parts, send, priority)
        finally:
            self._numbering.release()

    def _number_and_send(
        self, deltas: Deltas, parts: dict[int, ShardDeltas], send: Send, priority: Priority
    ) -> SplitWrite:
        taken: dict[int, tuple[WriteHandle, ShardDeltas]] = {}
        for number, part in parts.items():
            shard, instance, sequence = self._platform.shards[number], self._instances[number], self._sequences[number]
            try:
                taken[number] = (send(shard, self.name, instance, sequence + 1, part, priority), part)
            except BackpressureError as error:
                error.write = self._platform.not_taken(deltas, parts, taken) if taken else deltas
                raise
            except WriteTooLargeError:
                self._sequences[number] += 1  # refused for good: its number is used up (Q2)
                raise
            self._sequences[number] += 1
        return SplitWrite(taken)


class Platform:
    """Every shard of a home, open for writing. One process at a time may have it open."""

    def __init__(
        self,
        home: Home,
        clock: SteadyClock,
        disk: Disk,
        durable_epochs: Callable[[], dict[int, int]],
        close_batch_when: Predicate | None = None,
        rules: Mapping[Stream, StreamRule] | None = None,
        *,
        is_aligning: bool = False,
    ) -> None:
        self.clock = clock  # the platform's time, whatever happens to the machine's clock (C15)
        self._stack = ExitStack()
        self._series = SeriesNames()
        settings = home.settings
        self._shard_of_slot = shard_of_slot(settings.shards)
        resets = read_resets(home, disk)
        self.shards: dict[int, Shard] = {}
        with self._stack:
            for number in range(settings.shards):
                files = ShardFiles(number, home.log(number), home.segments(number))
                shard = Shard(
                    files,
                    settings,
                    clock,
                    disk,
                    lambda number=number: durable_epochs().get(number, 0),  # type: ignore[misc]
                    predicate=close_batch_when,
                    rules=EventTimeRules.of(settings, rules),
                    resets=resets,
                )
                self.shards[number] = self._stack.enter_context(shard)
            self._stack = self._stack.pop_all()
        self._is_stopping = threading.Event()
        self._aligner: threading.Thread | None = None
        if len(self.shards) > 1 and is_aligning:
            every_s = settings.watermark_ms / 1_000
            self._aligner = threading.Thread(target=self._align_by_the_clock, args=(every_s,), daemon=True)
            self._aligner.start()

    @classmethod
    def open(
        cls,
        home: Home,
        *,
        clock: Clock = system_clock,
        boot: Clock | None = None,
        disk: Disk | None = None,
        durable_epochs: Callable[[], dict[int, int]] | None = None,
        close_batch_when: Predicate | None = None,
        rules: Mapping[Stream, StreamRule] | None = None,
    ) -> "Platform":
        """Open a home for writing; it is created if it is not there.

        `clock` is checked against `boot`, a clock that cannot be set: by default the machine's against its own (C15).
        `durable_epochs` returns how far each shard has come in the lake; by default it is read from the tables.
        `close_batch_when` is a trigger of your own for batches (C5): it gets what is pending, and should be quick.
        `rules` are disorder and idle timeout of single streams; by default those of the home's stream definitions.
        """
        keep_memory()
        home.create()
        rules = _defined_rules(home) if rules is None else rules
        return cls(
            home,
            steady(clock, home.settings.clock_leap_ms * 1_000, boot),
            disk or RealDisk(),
            durable_epochs or _epochs_in_lake(home),
            close_batch_when,
            rules,
            is_aligning=clock is system_clock,
        )

    def __enter__(self) -> "Platform":
        return self

    def __exit__(self, *details: object) -> None:
        self.shutdown()

    def producer(self, name: str, *, from_start: bool = False) -> Producer:
        """A new instance of a producer; older instances of the same name may not write any more.

        It goes on numbering where the last one stopped. With `from_start` it numbers from 1 again: for a source that
        is read again from its beginning, where every write already taken is answered as a retry.
        """
        return Producer(self, name, from_start)

    def split(self, deltas: Deltas) -> dict[int, ShardDeltas]:
        """The parts of a write by shard, each in its order; they share no memory with the caller's objects (C14)."""
        return {number: part for number, (part, _) in self.split_with_places(deltas).items()}

    def split_with_places(self, deltas: Deltas) -> dict[int, tuple[ShardDeltas, Places | None]]:
        """The same parts, each with the places of its deltas in the write; None if they are all that there are."""
        table = as_columns(deltas)
        whole: ShardDeltas = own(deltas) if table is None else with_hashes(own_columns(table))
        if not len(whole):
            raise EmptyWriteError
        if len(self.shards) == 1:
            return {0: (whole, None)}
        shards = self._shards_of(whole)
        places = {int(number): np.flatnonzero(shards == number) for number in np.unique(shards)}
        return {number: (_take(whole, chosen), chosen) for number, chosen in places.items()}

    def _shards_of(self, whole: ShardDeltas) -> npt.NDArray[np.int64]:
        return self._shard_of_slot[slots_of(*keys_of(whole, self._series))]

    def not_taken(self, deltas: Deltas, parts: Mapping[int, ShardDeltas], taken: Collection[int]) -> Deltas:
        """The part of a write that is given back: rows as a copy, rows of columns as they were sent."""
        table = as_columns(deltas)
        if table is None:
            return [delta for shard, part in parts.items() if shard not in taken for delta in part]
        is_left = ~np.isin(self._shards_of(to_batch(table)), list(taken))
        try:
            return table.filter(pa.array(is_left))
        except pa.ArrowNotImplementedError:  # for a type that can be sent and not be filtered
            columns = {name: combined(table[name]) for name in table.column_names}
            return list(row_objects(columns, np.flatnonzero(is_left).tolist()))

    def seal(self) -> None:
        """Seal everything that the shards have taken, with the watermarks that they have reached together."""
        for shard in self.shards.values():
            shard.flush()
        self.align()
        for shard in self.shards.values():
            shard.seal()

    def align(self) -> None:
        """Let idle shards follow the watermarks of the others (T2).

        It runs by itself about every `watermark_ms` of the machine's clock; with a clock of your own, call it yourself.
        """
        for adoption in align([shard.event_time() for shard in self.shards.values()]):
            self.shards[adoption.shard].adopt(adoption.stream, adoption.watermark_us)

    def raise_earliest(self, earliest_us: int) -> None:
        """Refuse events that are older as too_old, from now on and for ever; returns when every log says so (D9, R5).

        Call it before old buckets are dropped; it cannot be undone.
        """
        for shard in self.shards.values():
            shard.raise_earliest(earliest_us)

    def cut_vectors(self, cut_us: int) -> None:
        """Refuse older changes to vectors as below_horizon, from now on and for ever; returns when every log says so.

        Call it before payloads are removed; it cannot be undone (K4). Changes that were taken before may still be on
        their way to the tables: `read_cut` says up to which epochs.
        """
        for shard in self.shards.values():
            shard.cut_vectors(cut_us)

    def begin_counting(self) -> None:
        """A door is about to open, and counts what it turns away from here on; returns when the log says so (A3).

        If its process is killed, the account names the time from its last word to the next start.
        """
        self._counting_shard.begin_counting(self.clock())

    def turn_away(self, tally: Tally, from_us: int, to_us: int, *, is_last: bool = False) -> None:
        """Tell the log what a door has turned away from one time up to another, also if that is nothing (A3).

        Call it every few seconds: it returns at once. `is_last` when the door closes in good order.
        """
        self._counting_shard.turn_away(TurnedAway(tally, from_us, to_us, is_last))

    @property
    def _counting_shard(self) -> Shard:
        """What is turned away belongs to no shard, so one keeps the books for all."""
        return self.shards[min(self.shards)]

    def watermarks(self) -> dict[str, int]:
        """`namespace/kind` → event-time watermark of the stream over all shards (T2)."""
        return stream_watermarks([shard.event_time() for shard in self.shards.values()])

    def metrics(self) -> str:
        """All shards' metrics, in the format of Prometheus (C13)."""
        from tidemark.observe.metrics import render

        return render([shard.metrics for shard in self.shards.values()])

    def _align_by_the_clock(self, every_s: float) -> None:
        while not self._is_stopping.wait(every_s):
            with suppress(ShardStoppedError):
                self.align()

    def shutdown(self) -> None:
        """Drain, flush, seal and stop every shard."""
        self._is_stopping.set()
        if self._aligner is not None:
            self._aligner.join()
        self._stack.close()


def _write_until(
    deadline: float | None, shard: Shard, producer: str, instance: int, sequence: int, part: ShardDeltas, how: Priority
) -> WriteHandle:
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return shard.write(producer, instance, sequence, part, how, timeout=left)


def _take(deltas: ShardDeltas, rows: npt.NDArray[np.int64]) -> ShardDeltas:
    if isinstance(deltas, pa.RecordBatch):
        return deltas.take(pa.array(rows))
    return [deltas[row] for row in rows]


def _defined_rules(home: Home) -> Mapping[Stream, StreamRule]:
    from tidemark.streams.event_time import read_rules  # imported late: definitions use the coordinator's words

    return read_rules(home)


def _epochs_in_lake(home: Home) -> Callable[[], dict[int, int]]:
    def read() -> dict[int, int]:
        from tidemark.tables.plans import durable_epochs  # imported late: most processes never ask

        return durable_epochs(home)

    return read
