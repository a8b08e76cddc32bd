"""The public API under stress: callers' threads and objects, hostile writes, wrong clocks, lost locks, power cuts.

Belongs here: lives of a `Platform` on a disk that forgets, and the conditions after each of them: the home opens, and
acknowledged deltas are stored, once, as they were when `write` returned. Real threads run in any order, so a seed
chooses what is done and not in which order; a rule that breaks once in a hundred runs is still broken.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from chaos.callers import Caller, Sent
from chaos.disks import PowerCut, SimulatedDisk, Survival
from chaos.history import ViolationError, must
from tidemark.coordinator import core, flusher
from tidemark.coordinator.platform import Platform, Producer, SplitWrite
from tidemark.log import frames
from tidemark.log import log_file as log
from tidemark.model.shard_errors import (
    BackpressureError,
    OutcomeUnknownError,
    ShardStoppedError,
    WaitTimeoutError,
    WriteTooLargeError,
)
from tidemark.storage.home import Home

# The limit of a frame, in place of 256 MiB: a write may take 1 MiB beside its rows already.
FRAME_LIMIT = 3 << 20
START_US = 1_772_445_600_000_000
LEAP_US = 400 * 86_400_000_000
# No wait is longer: if something hangs, that is the finding.
PATIENCE_S = 60.0
READ = ["shard", "producer", "sequence", "delta_id", "verdict", "signal"]
SETTINGS = "segment_bytes = 65536\n[bounds]\nbytes = 8_388_608\n"


class Fate(StrEnum):
    """What a caller was told of a write."""

    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"
    NOT_TAKEN = "not taken"


class Told:
    """One write, and what its caller was told."""

    def __init__(self, producer: str, given: Sent) -> None:
        self.producer, self.expected = producer, given.expected
        self.numbers: dict[int, tuple[int, int]] = {}  # shard → sequence and number of deltas
        self.fate = Fate.UNKNOWN


class PublicWorld:
    """A home over several lives."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = Random(seed)
        shards = self._random.choice((1, 1, 2))
        self._home = Home(folder).create(f"shards = {shards}\n{SETTINGS}")
        self._disk = SimulatedDisk()
        self._begun = time.monotonic_ns()
        self._leap_us = 0
        self._lock = threading.Lock()
        self._told: list[Told] = []
        self._senders: list[Producer] = []
        self._violation: BaseException | None = None
        self._seed, self.lives = seed, 0

    def run(self) -> None:
        """Run all lives, and check after each."""
        for _ in range(self._random.randint(2, 4)):
            self._live(self._random.choice((self._stop, self._cut_power, self._cut_power, self._take_over)))
            self._check()

    # Time: the time that passes on this machine, and a wall clock that may be set wrong.

    def _boot(self) -> int:
        return (time.monotonic_ns() - self._begun) // 1_000

    def _wall(self) -> int:
        return START_US + self._boot() + self._leap_us

    def _open(self) -> Platform:
        for shard in range(self._home.settings.shards):
            with suppress(FileNotFoundError):  # a lock keeps no process out here
                (self._home.log(shard) / "writer.lock").unlink()
        try:
            return Platform.open(
                self._home, clock=self._wall, boot=self._boot, disk=self._disk, durable_epochs=dict, rules={}
            )
        except Exception as error:
            raise ViolationError("C7", f"the home does not open: {type(error).__name__}: {error}") from error

    # A life.

    def _live(self, end: Callable[[Platform, list[threading.Thread]], None]) -> None:
        self.lives += 1
        platform = self._open()
        threads = self._begin(platform, f"{self._seed}x{self.lives}")
        end(platform, threads)
        if self._violation is not None:
            raise self._violation

    def _begin(self, platform: Platform, name: str) -> list[threading.Thread]:
        shared = platform.producer("shared")
        writers = self._random.randint(2, 4)
        self._senders = [
            shared if self._random.random() < 0.6 else platform.producer(f"p{at}") for at in range(writers)
        ]
        return self._start(self._senders, name)

    def _start(self, producers: list[Producer], name: str) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._send, args=(producer, Random(f"{name}-{at}"), f"{name}-{at}"), daemon=True)
            for at, producer in enumerate(producers)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _send(self, producer: Producer, random: Random, name: str) -> None:
        caller = Caller(random, name, START_US)
        try:
            waiting: list[tuple[Told, SplitWrite]] = []
            for _ in range(random.randint(3, 8)):
                if random.random() < 0.05:
                    self._leap_us = random.choice((-LEAP_US, LEAP_US, 0, 0))
                told, sent = self._write(producer, caller.write(), random)
                if sent is not None:
                    waiting.append((told, sent))
                if waiting and random.random() < 0.5:
                    self._hear(*waiting.pop(0))
            self._leap_us = 0
            for each in waiting:
                self._hear(*each)
        except PowerCut:
            pass
        except BaseException as error:  # noqa: BLE001 - a thread has no caller to raise to
            found = ViolationError("C14", f"unexpected {type(error).__name__} at the door: {error}")
            self._violation = error if isinstance(error, ViolationError) else found

    def _write(self, producer: Producer, given: Sent, random: Random) -> tuple[Told, SplitWrite | None]:
        told = Told(producer.name, given)
        with self._lock:
            self._told.append(told)
        try:
            if random.random() < 0.5:
                sent = producer.write(given.deltas, timeout=0.2)
            else:
                sent = producer.try_write(given.deltas)
        except (BackpressureError, WriteTooLargeError, ShardStoppedError):
            # With several shards one of them may have taken its part.
            told.fate = Fate.NOT_TAKEN if self._home.settings.shards == 1 else Fate.UNKNOWN
            return told, None
        finally:
            given.spoil()
        told.numbers = {shard: (handle.sequence, len(part)) for shard, (handle, part) in sent.parts.items()}
        return told, sent

    def _hear(self, told: Told, sent: SplitWrite) -> None:
        try:
            receipt = sent.wait(timeout=PATIENCE_S)
        except (OutcomeUnknownError, ShardStoppedError):
            return
        except WaitTimeoutError as error:
            raise ViolationError("C2", f"a write of {told.producer} is neither flushed nor given back") from error
        counted = receipt.accepted + receipt.duplicate + receipt.refused
        must(receipt.is_retry or counted == len(told.expected), "Q3", f"{len(told.expected)} sent, {counted} counted")
        told.fate = Fate.ACKNOWLEDGED

    # How a life ends.

    def _stop(self, platform: Platform, threads: list[threading.Thread]) -> None:
        _join(threads)
        platform.shutdown()
        self._disk = self._disk.crash(Survival.NOTHING, self._random)

    def _cut_power(self, platform: Platform, threads: list[threading.Thread]) -> None:
        time.sleep(self._random.random() * 0.05)
        left = self._disk.crash(self._random.choice(list(Survival)), self._random)
        _join(threads)
        with suppress(Exception, PowerCut):
            platform.shutdown()
        self._disk, self._leap_us = left, 0

    def _take_over(self, platform: Platform, threads: list[threading.Thread]) -> None:
        """Another process opens the home while this one goes on: no caller may be told more than is true."""
        time.sleep(self._random.random() * 0.03)
        self._leap_us = 0
        older = self._senders
        other = self._open()
        more = self._begin(other, f"{self._seed}y{self.lives}") + self._start(older, f"{self._seed}z{self.lives}")
        _join([*threads, *more])
        for each in (platform, other):
            with suppress(ShardStoppedError):
                each.shutdown()
        self._disk = self._disk.crash(Survival.NOTHING, self._random)

    # Conditions.

    def _check(self) -> None:
        with self._lock:
            told = list(self._told)
        with self._open() as platform:
            tables = [shard.snapshot().read() for shard in platform.shards.values()]
        self._disk = self._disk.crash(Survival.NOTHING, self._random)
        rows = [row for table in tables for row in table.select(READ).to_pylist()]
        found: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
        for row in rows:
            found.setdefault((row["shard"], row["producer"], row["sequence"]), []).append(row)
        stored = [row["delta_id"] for row in rows if row["verdict"] == "accepted"]
        must(len(stored) == len(set(stored)), "Q2", "a delta was taken twice")
        known = {each[0]: each[1] for write in told for each in write.expected if each is not None}
        for row in rows:
            if row["verdict"] == "accepted":
                counted = (row["signal"] or {}).get("count")
                what = f"delta {row['delta_id']} is stored with {counted}, and was not sent like that"
                must(counted is not None and known.get(row["delta_id"]) == counted, "C14", what)
        for write in told:
            _check_write(write, found, set(stored))


def _check_write(write: Told, found: dict[tuple[int, str, int], list[dict[str, Any]]], stored: set[str]) -> None:
    ids = [each[0] for each in write.expected if each is not None]
    there = [delta_id for delta_id in ids if delta_id in stored]
    if write.fate is Fate.NOT_TAKEN:
        must(not there, "C8", f"{there} were given back as not taken, and are there")
    elif write.fate is Fate.ACKNOWLEDGED:
        missing = sorted(set(ids) - set(there))
        must(not missing, "C2", f"{missing} were acknowledged by {write.producer} as flushed, and are gone")
        for shard, (sequence, size) in write.numbers.items():
            rows = found.get((shard, write.producer, sequence), [])
            must(len(rows) == size, "C2", f"write {sequence} of {write.producer} has {len(rows)} of {size} rows")


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        must(not thread.is_alive(), "C10", "a caller waits for ever")


@contextmanager
def small_frames() -> Iterator[None]:
    """Lower the limit of frames, so that a test can come near it."""
    with ExitStack() as stack:
        for module in (core, flusher, frames, log):
            stack.enter_context(patch.object(module, "PAYLOAD_LIMIT", FRAME_LIMIT))
        yield


def stress(seed: int) -> str | None:
    """Run one seed; return the broken rule, if any."""
    with tempfile.TemporaryDirectory(prefix="tidemark-chaos-") as folder, small_frames():
        try:
            PublicWorld(seed, Path(folder)).run()
        except ViolationError as found:
            return str(found)
        except Exception as error:  # noqa: BLE001 - nothing else may come out of it
            return f"C7: unexpected {type(error).__name__}: {error}"
    return None
