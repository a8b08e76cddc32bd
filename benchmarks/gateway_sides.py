"""The sides of `bench gateway`: a served platform in a process of its own, and what sends to it from another.

Belongs here: the server whose CPU time is measured, and the load. A side prints its measurements as one JSON object.
What goes over the socket is made before any clock starts, so the sender's own work is small.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import uvloop

from benchmarks.coordinator_data import Content, lines, messages, read_message, sealed_content, signals
from benchmarks.coordinator_sides import Measured, percentiles
from benchmarks.harness import say
from tidemark.client.connection import Connection
from tidemark.event_time.clock import system_clock
from tidemark.gateway import places
from tidemark.gateway.serve import Served
from tidemark.storage.home import Home
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.messages import Hello

CONNECTIONS, UNDERWAY = 4, 8
BUSY = 100
SETTINGS = "[serve]\nwindow_bytes = 16_777_216\nunauthenticated_connections = 2_000\nconnections = 5_000\n"


def serve(root: Path) -> None:
    """Serve a home until standard input ends; then say how much CPU it took."""
    home = Home(root).create(SETTINGS)

    async def run() -> None:
        served = Served(home, "127.0.0.1:0", "", say)
        task = asyncio.create_task(served.run())
        while (found := places.read_serving(home)) is None:
            await asyncio.sleep(0.01)
        print(json.dumps(found.w1), flush=True)
        before = time.process_time()
        await asyncio.to_thread(sys.stdin.read)
        print(json.dumps(time.process_time() - before), flush=True)
        served.stop()
        await task

    uvloop.run(run())


class Server:
    """The served side, in a process of its own."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gateway_sides", "serve", str(root)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._child.stdout is not None  # noqa: S101 - it is a pipe
        [self.url] = json.loads(self._child.stdout.readline())
        self._process = psutil.Process(self._child.pid)

    def cpu_s(self) -> float:
        """CPU-seconds so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def end(self) -> float:
        """Stop it; CPU-seconds since it listened."""
        assert self._child.stdin is not None  # noqa: S101 - they are pipes
        assert self._child.stdout is not None  # noqa: S101
        self._child.stdin.close()
        cpu_s = float(json.loads(self._child.stdout.readline()))
        self._child.wait()
        return cpu_s


@contextlib.asynccontextmanager
async def connections(url: str, count: int, name: str = "p") -> AsyncIterator[list[Connection]]:
    """Producers, each with its connection."""
    opened = [await Connection.open(url, Hello(producer=f"{name}{number}")) for number in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            await connection.close()


async def pump(connection: Connection, payloads: Sequence[bytes], rows: int, kind: FrameType, underway: int) -> None:
    """Send writes, some of them at a time, and return when the last is acknowledged."""
    waiting: deque[asyncio.Future[Any]] = deque()
    flags = Flag.BATCHED if kind is FrameType.BATCH else Flag.NONE
    for number, payload in enumerate(payloads, 1):
        await connection.room(len(payload))
        waiting.append(connection.write(number, kind, payload, rows=rows, flags=flags))
        if len(waiting) >= underway:
            await waiting.popleft()
    for future in waiting:
        await future


def w1_columns(root: Path, rows: int, write_rows: int) -> Measured:
    """Writes in columns over a socket, until all are acknowledged as flushed."""
    writes, content = messages(rows, write_rows, system_clock())
    payloads = [as_stream(read_message(write)) for write in writes]
    return _measured(root, content, payloads, write_rows, FrameType.BATCH, CONNECTIONS, UNDERWAY)


def w1_singles(root: Path, count: int) -> Measured:
    """Single deltas from 64 connections, each with one write under way."""
    writes, content = lines(count, system_clock())
    return _measured(root, content, writes, 1, FrameType.DELTA, 64, 1)


def _measured(
    root: Path, content: Content, payloads: Sequence[bytes], rows: int, kind: FrameType, producers: int, underway: int
) -> Measured:
    server = Server(root)

    async def run() -> float:
        async with connections(server.url, producers) as opened:
            started = time.perf_counter()
            await asyncio.gather(
                *(
                    pump(connection, payloads[number::producers], rows, kind, underway)
                    for number, connection in enumerate(opened)
                )
            )
            return time.perf_counter() - started

    before = server.cpu_s()
    wall_s = uvloop.run(run())
    cpu_s = server.cpu_s() - before
    server.end()
    return Measured(wall_s=wall_s, cpu_s=cpu_s, is_equal=sealed_content(Home(root)) == content)


def w1_paced(root: Path, rate: int, write_rows: int, seconds: float) -> Measured:
    """A steady rate over one connection: how long each write takes until it is acknowledged."""
    payloads = [as_stream(batch) for batch in _ahead(int(rate * seconds), write_rows)]
    server = Server(root)

    async def run() -> list[float]:
        async with connections(server.url, 1) as [connection]:
            return await _at_a_pace(connection, payloads, write_rows, write_rows / rate)

    latencies = uvloop.run(run())
    server.end()
    return Measured(latencies_ms=percentiles(latencies), is_equal=True)


def crowd(root: Path, idle: int, writes: int) -> Measured:
    """Connections that send a delta ten times a second, beside others that say nothing: how long each write takes."""
    payloads, _ = lines(BUSY * writes, system_clock())
    server = Server(root)

    async def run() -> list[float]:
        async with connections(server.url, idle, "idle"), connections(server.url, BUSY, "busy") as busy:
            paced = (
                _at_a_pace(connection, payloads[number::BUSY], 1, 0.1, number / BUSY / 10)
                for number, connection in enumerate(busy)
            )
            return [latency for each in await asyncio.gather(*paced) for latency in each]

    latencies = uvloop.run(run())
    server.end()
    return Measured(latencies_ms=percentiles(latencies), is_equal=True)


def idle_door(root: Path, count: int, seconds: float) -> Measured:
    """A server that nobody speaks to, with so many connections open: its CPU time."""
    server = Server(root)

    async def run() -> float:
        async with connections(server.url, count):
            before = server.cpu_s()
            await asyncio.sleep(seconds)
            return server.cpu_s() - before

    cpu_s = uvloop.run(run())
    server.end()
    return Measured(cpu_s=cpu_s, wall_s=seconds, is_equal=True)


async def _at_a_pace(
    connection: Connection, payloads: Sequence[bytes], rows: int, interval_s: float, later_s: float = 0.0
) -> list[float]:
    """Send a write whenever one is due, however long the last took; the seconds until each was acknowledged."""
    kind, flags = (FrameType.BATCH, Flag.BATCHED) if rows > 1 else (FrameType.DELTA, Flag.NONE)
    latencies: list[float] = []
    futures = []
    await connection.write(1, kind, payloads[0], rows=rows, flags=flags)  # what either side imports is not its pace
    start = time.perf_counter() + later_s
    for number, payload in enumerate(payloads[1:], 2):
        await asyncio.sleep(max(0.0, start + number * interval_s - time.perf_counter()))
        sent = time.perf_counter()
        future = connection.write(number, kind, payload, rows=rows, flags=flags)
        future.add_done_callback(lambda _, sent=sent: latencies.append(time.perf_counter() - sent))  # type: ignore[misc]
        futures.append(future)
    await asyncio.gather(*futures)
    return latencies


def _ahead(rows: int, write_rows: int) -> Iterator[pa.RecordBatch]:
    now_us = system_clock()
    for first in range(0, rows, write_rows):
        yield signals(first, write_rows, now_us)


def as_stream(batch: pa.RecordBatch) -> bytes:
    """A batch as a frame's payload."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


if __name__ == "__main__":
    side = globals()[sys.argv[1]]
    arguments = [Path(sys.argv[2]), *(float(text) if "." in text else int(text) for text in sys.argv[3:])]
    found = side(*arguments)
    if found is not None:
        print(json.dumps(found))
