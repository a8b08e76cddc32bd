"""What a delta costs by HTTP: CPU of door and coordinator together, and the rate, from many connections.

Belongs here: the load, from a process of its own whose CPU is not counted, and reading what the two others used.
A side prints its measurements as one JSON object.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import pyarrow as pa

from tidemark.gateway.places import w1_socket
from tidemark.storage.home import Home

SINGLES_CONNECTIONS = 64
# As many writes are under way as in process.
ARROW_CONNECTIONS = 32
ARROW_ROWS = 1_000
_TICKS = os.sysconf("SC_CLK_TCK")
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Servers(NamedTuple):
    """A served home: the coordinator's process, and the door's."""

    port: int
    coordinator: int
    door: int


class Measured(NamedTuple):
    """One load."""

    deltas_per_s: float
    door_us: float  # CPU per delta
    coordinator_us: float
    p50_ms: float
    p99_ms: float


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def served() -> Iterator[Servers]:
    """A home of its own, with its coordinator and its door."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        home = Home(Path(folder).resolve() / "home").create()
        serve = [sys.executable, "-P", "-m", "tidemark.cli", "serve", "--home", str(home.root)]
        coordinator = subprocess.Popen([*serve, "--listen", "127.0.0.1:0", "--no-http"], stderr=subprocess.DEVNULL)
        try:
            while not w1_socket(home).exists():
                time.sleep(0.05)
            listen = [sys.executable, "-P", "-m", "tidemark.gateway.http", "--home", str(home.root)]
            door = subprocess.Popen([*listen, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
            try:
                announced = door.stdout.readline() if door.stdout is not None else ""
                port = int(announced.rpartition(":")[2])
                yield Servers(port, coordinator.pid, door.pid)
            finally:
                door.terminate()
                door.wait()
        finally:
            coordinator.terminate()
            coordinator.wait()


class _Load:
    """Requests over keep-alive connections, one after the other on each."""

    def __init__(self, port: int, connections: int, content_type: str) -> None:
        self._port, self._connections = port, connections
        self._head = f"POST /v1/deltas HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n"
        self.seconds: list[float] = []

    def body(self, number: int) -> bytes:
        """The body of a request; each has deltas of its own."""
        raise NotImplementedError

    async def run(self, seconds: float) -> int:
        """The requests that were answered with 200, in so many seconds."""
        until = time.perf_counter() + seconds
        done = await asyncio.gather(*(self._one(number, until) for number in range(self._connections)))
        return sum(done)

    async def _one(self, connection: int, until: float) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        done = 0
        while (start := time.perf_counter()) < until:
            body = self.body(connection << 32 | done)
            writer.write(f"{self._head}content-length: {len(body)}\r\n\r\n".encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            answer = await reader.readexactly(int(length[1])) if length else b""
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer.decode())
            self.seconds.append(time.perf_counter() - start)
            done += 1
        writer.close()
        return done


class Singles(_Load):
    """One delta in each request."""

    def __init__(self, port: int, connections: int = SINGLES_CONNECTIONS) -> None:
        super().__init__(port, connections, "application/json")
        self._at = int(time.time() * 1_000_000)

    def body(self, number: int) -> bytes:
        return (
            b'{"namespace":"shop","kind":"signal","delta_id":"d%d","event_ts":%d,'
            b'"signal":{"entity_id":"item-%d","signal":"view"}}' % (number, self._at, number % 1_000)
        )


class ArrowBodies(_Load):
    """A thousand deltas in each request, as columns."""

    def __init__(self, port: int, connections: int = ARROW_CONNECTIONS) -> None:
        super().__init__(port, connections, "application/vnd.apache.arrow.stream")
        self._at = int(time.time() * 1_000_000)

    def body(self, number: int) -> bytes:
        rows = range(number * ARROW_ROWS, (number + 1) * ARROW_ROWS)
        signals = [{"entity_id": f"item-{row % 1_000}", "signal": "view"} for row in rows]
        table = pa.table(
            {
                "namespace": pa.repeat("shop", ARROW_ROWS),
                "kind": pa.repeat("signal", ARROW_ROWS),
                "delta_id": [f"d{row}" for row in rows],
                "event_ts": pa.repeat(pa.scalar(self._at, pa.timestamp("us", "UTC")), ARROW_ROWS),
                "signal": pa.array(signals),
            }
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue().to_pybytes())


def measure(servers: Servers, load: _Load, seconds: float, rows: int = 1) -> Measured:
    """Put a load on the door, after a second of the same to warm up."""
    import uvloop

    def run(seconds: float) -> int:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(load.run(seconds))

    run(1.0)
    load.seconds.clear()
    before = cpu_s(servers.door), cpu_s(servers.coordinator)
    start = time.perf_counter()
    deltas = run(seconds) * rows
    took = time.perf_counter() - start
    door, coordinator = cpu_s(servers.door) - before[0], cpu_s(servers.coordinator) - before[1]
    cuts = quantiles(load.seconds, n=100)
    return Measured(deltas / took, door / deltas * 1e6, coordinator / deltas * 1e6, cuts[49] * 1_000, cuts[98] * 1_000)


def singles(_: Path, seconds: float) -> Measured:
    """Single JSON deltas, each a request of its own."""
    with served() as servers:
        return measure(servers, Singles(servers.port), seconds)


def arrow_bodies(_: Path, seconds: float) -> Measured:
    """A thousand rows a request, in columns."""
    with served() as servers:
        return measure(servers, ArrowBodies(servers.port), seconds, ARROW_ROWS)


if __name__ == "__main__":
    side = globals()[sys.argv[1]]
    print(json.dumps(side(Path(sys.argv[2]), float(sys.argv[3]))._asdict()))
