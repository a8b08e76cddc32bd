"""The sides of `bench coordinator`: the coordinator, the bare loop, and SlateDB, each in a process of its own.

Belongs here: doing the work and measuring it. A side prints its measurements as one JSON object. Only `Ours` calls the
coordinator.

The bare loop is the simplest possible log: decode a message, write its bytes, sync, go on. SlateDB gets a whole message
under one key if deltas come in columns, and one key for each if they come one by one. It is set to flush every
millisecond, and a write counts when it reports it as durable.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypedDict

import google_crc32c
import msgspec
import numpy as np
import psutil
import pyarrow as pa

from benchmarks.coordinator_data import (
    NOTHING,
    Content,
    again,
    content_of,
    lines,
    messages,
    read_message,
    sealed_content,
    signals,
)
from tidemark import Delta, Platform
from tidemark.coordinator.aio import AsyncProducer
from tidemark.event_time.clock import system_clock
from tidemark.storage.home import Home

COLUMN_PRODUCERS, WRITES_UNDERWAY = 4, 8
SINGLE_PRODUCERS = 64
# Batches that are made before a paced run; they are sent over and over, each time with later events.
MADE_AHEAD = 200
# Deltas that are sent before a paced run: more than twice as many as are remembered; numbered so that none is a
# duplicate.
WARM_UP, WARM_FROM = 2_200_000, 10**9
# About the size of one of these deltas in the log.
LOGGED_BYTES = 77
MIB = 1024 * 1024


class Measured(TypedDict, total=False):
    """The results of a side."""

    wall_s: float
    cpu_s: float
    is_equal: bool
    latencies_ms: list[float]  # p50 and p99
    bytes: list[int]  # resident at most, in the second and in the last tenth of a run
    log_bytes: int
    sealed_s: float  # until the recovered log was sealed, too
    content: list[int]
    profile: dict[str, float]  # CPU-seconds by purpose


class Stopwatch:
    """Wall and CPU time of this process since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Measured:
        """The time since then."""
        return Measured(wall_s=time.perf_counter() - self._wall, cpu_s=time.process_time() - self._cpu)


class Profile:
    """The CPU time of a coordinator by thread, since it was made."""

    def __init__(self) -> None:
        self._before = self._by_thread()

    def read(self, measured: Measured) -> Measured:
        """The measurements, with CPU time by thread; the producers' threads have ended, so theirs is the rest."""
        spent = {name: cpu_s - self._before.get(name, 0.0) for name, cpu_s in self._by_thread().items()}
        known = {
            part: sum(cpu_s for name, cpu_s in spent.items() if name.startswith(threads))
            for part, threads in (("writer", "shard-"), ("delivery", "deliver-"), ("sealing", "seal-"))
        }
        return {**measured, "profile": {**known, "producers": measured["cpu_s"] - sum(known.values())}}

    def _by_thread(self) -> dict[str, float]:
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        found = psutil.Process().threads()
        return {names[each.id]: each.user_time + each.system_time for each in found if each.id in names}


class Ours:
    """The coordinator as a producer sees it."""

    def __init__(self, root: Path, settings: str = "") -> None:
        self.home = Home(root).create(settings)
        self.platform = Platform.open(self.home, durable_epochs=dict)

    def send(self, name: str, writes: Sequence[Any], decode: Callable[[Any], Any], underway: int) -> None:
        """Send writes, some of them at a time, and return when the last is flushed."""
        producer = self.platform.producer(name)
        waiting: deque[Any] = deque()
        for write in writes:
            waiting.append(producer.write(decode(write)))
            if len(waiting) >= underway:
                waiting.popleft().wait()
        while waiting:
            waiting.popleft().wait()

    def send_from(self, producers: int, writes: Sequence[Any], decode: Callable[[Any], Any], underway: int) -> Measured:
        """The same from several threads, each a producer with its share of the writes."""
        threads = [
            threading.Thread(target=self.send, args=(f"p{number}", writes[number::producers], decode, underway))
            for number in range(producers)
        ]
        watch = Stopwatch()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return watch.read()

    def warm_up(self) -> Content:
        """Fill everything that grows up to a bound: the memory of identities has two tables, and both get full."""
        batches = (signals(WARM_FROM + first, 10_000, system_clock()) for first in range(0, WARM_UP, 10_000))
        content = NOTHING
        producer = self.platform.producer("warm")
        for batch in batches:
            producer.write(batch).wait()
            content += content_of(batch)
        return content

    def close(self, expected: Content) -> bool:
        """Shut down; true if every delta is in the segments exactly once."""
        self.platform.shutdown()
        return sealed_content(self.home) == expected


def ours_columns(root: Path, rows: int, write_rows: int, identities: int) -> Measured:
    """Writes in columns until all are flushed."""
    writes, content = messages(rows, write_rows, system_clock())
    ours = Ours(root, f"recent_identities = {identities}")
    profile = Profile()
    measured = profile.read(ours.send_from(COLUMN_PRODUCERS, writes, read_message, WRITES_UNDERWAY))
    return {**measured, "is_equal": ours.close(content)}


def bare_columns(root: Path, rows: int, write_rows: int) -> Measured:
    """The same messages through the bare loop."""
    writes, _ = messages(rows, write_rows, system_clock())
    with BareLog(root, sum(map(len, writes))) as log:
        watch = Stopwatch()
        for message in writes:
            read_message(message)
            log.append(message)
        return watch.read()


def slate_columns(root: Path, rows: int, write_rows: int) -> Measured:
    """The same messages into SlateDB."""
    writes, _ = messages(rows, write_rows, system_clock())
    return asyncio.run(_into_slate(root, writes, COLUMN_PRODUCERS * WRITES_UNDERWAY, read_message))


def ours_singles(root: Path, count: int) -> Measured:
    """Writes of one delta each, from many producers that wait for every one: coroutines, as in a server."""
    writes, content = lines(count, system_clock())
    ours = Ours(root)

    async def send(number: int) -> None:
        producer = AsyncProducer(await asyncio.to_thread(ours.platform.producer, f"p{number}"))
        for line in writes[number::SINGLE_PRODUCERS]:
            await (await producer.write([line])).wait()

    async def send_all() -> Measured:
        watch = Stopwatch()
        await asyncio.gather(*(send(number) for number in range(SINGLE_PRODUCERS)))
        return watch.read()

    profile = Profile()
    measured = profile.read(asyncio.run(send_all()))
    return {**measured, "is_equal": ours.close(content)}


def bare_singles(root: Path, count: int) -> Measured:
    """The same through the bare loop, as many at a time as there are producers."""
    writes, _ = lines(count, system_clock())
    decoder = msgspec.json.Decoder(Delta)
    with BareLog(root, sum(map(len, writes))) as log:
        watch = Stopwatch()
        for first in range(0, count, SINGLE_PRODUCERS):
            group = writes[first : first + SINGLE_PRODUCERS]
            for line in group:
                decoder.decode(line)
            log.append(b"".join(group))
        return watch.read()


def slate_singles(root: Path, count: int) -> Measured:
    """The same into SlateDB."""
    writes, _ = lines(count, system_clock())
    return asyncio.run(_into_slate(root, writes, SINGLE_PRODUCERS, msgspec.json.Decoder(Delta).decode))


def ours_paced(root: Path, rate: int, write_rows: int, seconds: float) -> Measured:
    """A steady rate: how long each write takes until it is flushed, and how memory grows."""
    ours = Ours(root)
    content = ours.warm_up()
    producer = ours.platform.producer("paced")
    latencies: list[float] = []
    underway: SimpleQueue[tuple[float, Any] | None] = SimpleQueue()

    def finish() -> None:
        while (entry := underway.get()) is not None:
            started, write = entry
            write.wait()
            latencies.append(time.perf_counter() - started)

    waiter = threading.Thread(target=finish)
    waiter.start()
    memory = Memory(seconds)
    for started, batch in _paced(rate, write_rows, seconds):
        underway.put((started, producer.write(batch)))
        memory.look()
        content += content_of(batch)
    underway.put(None)
    waiter.join()
    return Measured(latencies_ms=percentiles(latencies), bytes=memory.warm_and_last(), is_equal=ours.close(content))


def bare_paced(root: Path, rate: int, write_rows: int, seconds: float) -> Measured:
    """The bare loop at the same rate."""
    latencies: list[float] = []
    with BareLog(root, 256 * MIB) as log:
        for started, batch in _paced(rate, write_rows, seconds):
            message = batch.serialize().to_pybytes()
            read_message(message)
            log.append(message)
            latencies.append(time.perf_counter() - started)
    return Measured(latencies_ms=percentiles(latencies))


def leave_log(root: Path, megabytes: int) -> Measured:
    """Write a log of about this size and exit without closing anything."""
    ours = Ours(root, f"segment_bytes = {2 * megabytes * MIB}\nsegment_age_ms = 3_600_000")
    producer = ours.platform.producer("p0")
    content = NOTHING
    for first in range(0, megabytes * MIB // LOGGED_BYTES, 10_000):
        batch = signals(first, 10_000, system_clock())
        producer.write(batch).wait()
        content += content_of(batch)
    logged = sum(len(path.read_bytes().rstrip(b"\0")) for path in ours.home.log(0).glob("*.log"))
    print(json.dumps(Measured(log_bytes=logged, content=list(content))), flush=True)
    os._exit(0)


def recover_log(root: Path, deltas: int, hashes: int) -> Measured:
    """Open a home with an unsealed log, until writes are taken; that log is sealed afterwards."""
    home = Home(root)
    watch = Stopwatch()
    platform = Platform.open(home, durable_epochs=dict)
    measured = watch.read()
    platform.seal()
    measured["sealed_s"] = watch.read()["wall_s"]
    platform.shutdown()
    return {**measured, "is_equal": sealed_content(home) == Content(deltas, hashes)}


def bare_read(root: Path) -> Measured:
    """Read the same log and its checksum, and nothing else."""
    watch = Stopwatch()
    for path in sorted(Home(root).log(0).glob("*.log")):
        google_crc32c.value(path.read_bytes().rstrip(b"\0"))
    return watch.read()


class BareLog:
    """A file that is appended to and synced, with its space allocated as the coordinator does."""

    def __init__(self, root: Path, size: int) -> None:
        root.mkdir(parents=True)
        self._fd = os.open(root / "bare.log", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if size:
            os.posix_fallocate(self._fd, 0, size)
        self._end = 0

    def __enter__(self) -> "BareLog":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def append(self, data: bytes | memoryview) -> None:
        """Write and sync."""
        os.pwrite(self._fd, data, self._end)
        os.fdatasync(self._fd)
        self._end += len(data)


class Memory:
    """Resident memory over a run: the greatest in its second tenth, and in its last."""

    def __init__(self, seconds: float) -> None:
        self._process = psutil.Process()
        self._begin, self._tenth = time.perf_counter(), seconds / 10
        self._peaks = [0] * 11

    def look(self) -> None:
        """Record the present value."""
        at = min(10, int((time.perf_counter() - self._begin) / self._tenth))
        self._peaks[at] = max(self._peaks[at], self._process.memory_info().rss)

    def warm_and_last(self) -> list[int]:
        """The two numbers, in bytes."""
        return [self._peaks[1], max(self._peaks[9:])]


async def _into_slate(
    root: Path, writes: Sequence[bytes], underway: int, decode: Callable[[bytes], object]
) -> Measured:
    from slatedb.uniffi import DbBuilder, ObjectStore, Settings  # a peer, and only here

    root.mkdir(parents=True)
    builder = DbBuilder(str(root).lstrip("/"), ObjectStore.resolve("file:///"))
    settings = Settings.default()
    settings.set("flush_interval", '"1ms"')
    builder.with_settings(settings)
    database = await builder.build()

    async def send(number: int) -> None:
        for place in range(number, len(writes), underway):
            decode(writes[place])
            handle = await database.put(b"%016d" % place, writes[place])
            await handle.await_durable()

    watch = Stopwatch()
    await asyncio.gather(*(send(number) for number in range(underway)))
    measured = watch.read()
    await database.shutdown()
    return measured


def _paced(rate: int, write_rows: int, seconds: float) -> Iterator[tuple[float, pa.RecordBatch]]:
    """A write whenever one is due, however long the last took; with the time at which it was sent."""
    interval = write_rows / rate
    made_us = system_clock()
    made = [signals(number * write_rows, write_rows, made_us) for number in range(MADE_AHEAD)]
    start = time.perf_counter()
    for number in range(int(seconds / interval)):
        batch = again(made[number % MADE_AHEAD], system_clock() - made_us)
        time.sleep(max(0.0, start + number * interval - time.perf_counter()))
        yield time.perf_counter(), batch


def percentiles(seconds: Sequence[float]) -> list[float]:
    """The median and the 99th of a hundred, in milliseconds."""
    return [float(value) * 1_000 for value in np.percentile(seconds, [50, 99])]


if __name__ == "__main__":
    side = globals()[sys.argv[1]]
    arguments = [Path(sys.argv[2]), *(float(text) if "." in text else int(text) for text in sys.argv[3:])]
    print(json.dumps(side(*arguments)))
