"""The client: what a program holds to send deltas, from any number of threads.

Belongs here: the two threads of a client (one seals writes, one has the network), its beginning and its end. What waits
is in `outbox.py`, what is sent next in `sender.py`.
"""

import asyncio
import atexit
import logging
import os
import ssl as tls
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random, SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from tidemark.client.address import parse_address
from tidemark.client.batches import Content, Reached
from tidemark.client.encoding import Columns, encode_columns, encode_rows, is_columns
from tidemark.client.errors import ClientClosedError, ClientError, ForkedError, NotSentError, TakenBackError
from tidemark.client.filling import Bounds
from tidemark.client.handles import Sent
from tidemark.client.outbox import Outbox
from tidemark.client.sender import FIRST_S, MOST_S, Backoff, Sender
from tidemark.client.spool import Spool
from tidemark.model.deltas import Priority
from tidemark.model.settings import is_name
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.limits import LIMITS
from tidemark.wire.messages import Hello, LevelName
from tidemark.wire.payloads import decompress, json_lines

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("tidemark.client")

# How long the end of the interpreter waits for the server.
EXIT_S = 5.0
CLOSE_S = 30.0
# Room for what is around the deltas of one frame.
_OVERHEAD_BYTES = 1024


class Report(NamedTuple):
    """What was not acknowledged when a client was closed."""

    left: int  # deltas
    in_spool: int  # of these; the next client with this spool sends them
    spool: Path | None
    why: str

    def __str__(self) -> str:
        if not self.left:
            return "Everything was acknowledged."
        where = f"{self.in_spool:,} of them are in the spool {self.spool}: the next client with it sends them."
        return f"{self.left:,} deltas were not acknowledged ({self.why}). {where if self.spool else 'They are lost.'}"


class Stats(NamedTuple):
    """How a client is doing."""

    state: str
    connections: int  # so far
    waiting_deltas: int
    waiting_bytes: int


class Client:
    """Sends deltas to a server, and keeps what it has not acknowledged. Made by `connect`."""

    def __init__(
        self,
        address: str,
        hello: Hello,
        *,
        spool: Path | None,
        bounds: Bounds,
        from_start: bool = False,
        compress: bool = False,
        ssl: tls.SSLContext | None = None,
        backoff: Backoff,
        exit_s: float = EXIT_S,
    ) -> None:
        self.address, self.producer, self._hello = address, hello.producer or "", hello
        self._pid, self._exit_s = os.getpid(), exit_s
        self._spool = None if spool is None else Spool(spool, self.producer)
        if self._spool is not None:
            hello = self._hello = replace(hello, instance=self._spool.state.instance)
            if self._spool.torn_bytes:
                log.warning("%s: %d bytes that a crash had torn were cut off", spool, self._spool.torn_bytes)
        self._outbox = Outbox(self.producer, bounds, self._spool, from_start=from_start, is_compressing=compress)
        self._levels = frozenset(
            [*(Reached(level) for level in hello.levels), *([Reached.SPOOLED] if spool is not None else [])]
        )
        self._closing = threading.Lock()
        self._report: Report | None = None
        self._is_taken_back = False
        self._sender: Sender | None = None
        self._ssl, self._backoff = ssl, backoff
        self._started = threading.Event()
        self._stop_network: Callable[[], None] = lambda: None
        self._sealer = threading.Thread(target=self._seal, name=f"tidemark-seal-{self.producer}", daemon=True)
        self._network = threading.Thread(target=self._talk, name=f"tidemark-send-{self.producer}", daemon=True)
        self._sealer.start()
        self._network.start()
        self._started.wait()
        _clients.add(self)
        atexit.register(self._at_exit)

    # The two threads.

    def _seal(self) -> None:
        try:
            while self._outbox.seal_next():
                pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            self._outbox.fail(error if isinstance(error, ClientError) else ClientError(f"Sealing failed: {error!r}."))

    def _talk(self) -> None:
        try:
            asyncio.run(self._talk_until_stopped())
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            self._outbox.fail(ClientError(f"The client failed: {error!r}. What is in its spool is kept."))
        finally:
            self._started.set()

    async def _talk_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        self._sender = Sender(self.address, self._hello, self._outbox, self._ssl, self._backoff)
        running = asyncio.create_task(self._sender.run())

        def stop() -> None:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(running.cancel)

        self._stop_network = stop
        self._started.set()
        with suppress(asyncio.CancelledError):
            await running

    # Sending.

    def send(self, deltas: Any, timeout: float | None = None) -> Sent:
        """Take deltas: dictionaries, `Delta` or JSON, or a table of Arrow, Polars or pandas.

        Returns as soon as they are taken; afterwards the objects may change. While there is no room it waits, at most
        `timeout` seconds, and then raises `ClientFullError`. The handle says what became of them.
        """
        return self.put(self.encode(deltas), timeout)

    def put(self, encoded: Sequence[bytes | Columns], timeout: float | None) -> Sent:
        """Take what `encode` has made of deltas."""
        self._check()
        parts = self._outbox.put(encoded, timeout)
        return Sent(parts, self._outbox, self._levels, self._check, self._say_state)

    def watch(self, tell: Callable[[], None]) -> None:
        """Call something once, when there may be room."""
        self._outbox.watch(tell)

    def encode(self, deltas: Any) -> Sequence[bytes | Columns]:
        """Deltas as they will be sent, in memory of their own (C14)."""
        self._check()
        bounds = self._outbox.bounds
        limit = LIMITS.payload_bytes - _OVERHEAD_BYTES
        if is_columns(deltas):
            return encode_columns(deltas, bounds.rows, bounds.bytes, limit)
        return encode_rows(deltas, limit)

    def flush(self, timeout: float | None = None) -> bool:
        """Send what lingers, and return once everything is acknowledged; false if that takes longer than `timeout`."""
        self._check()
        self._outbox.flush()
        is_empty = self._outbox.wait_until_empty(timeout)
        if not is_empty and self._outbox.error is not None:
            raise self._outbox.error
        return is_empty

    def wait_connected(self, timeout: float | None = None) -> bool:
        """Return true once the server has answered; raises what it refuses, and returns false after `timeout`."""
        self._check()
        found = self._sender is not None and self._sender.has_connected.wait(timeout)
        if self._outbox.error is not None:
            raise self._outbox.error
        return found

    @property
    def stats(self) -> Stats:
        """How it is doing."""
        left, _, _ = self._outbox.left()
        connections = 0 if self._sender is None else self._sender.connections
        return Stats(self._say_state(), connections, left, self._outbox.waiting_bytes)

    def take_back(self) -> "list[list[bytes] | pa.Table]":
        """Everything that is not acknowledged, as something that `send` takes; the client sends none of it any more.

        What was on its way may have arrived. The spool is emptied by `close`: until then it still has everything.
        """
        self._check()
        self._is_taken_back = True
        contents = self._outbox.take_back()
        self._stop_network()
        return [_given_back(content) for content in contents]

    def _say_state(self) -> str:
        return "not connected yet" if self._sender is None else self._sender.state

    # The end.

    def close(self, timeout: float | None = CLOSE_S) -> Report:
        """Send what is left, wait at most so long for its acknowledgement, and stop. The report says what stayed."""
        self._check_process()
        with self._closing:
            if self._report is None:
                self._report = self._close(timeout)
                atexit.unregister(self._at_exit)
                _clients.discard(self)
        return self._report

    def _close(self, timeout: float | None) -> Report:
        self._outbox.close()
        self._outbox.wait_until_empty(timeout)
        # First what was taken comes into the spool, then nothing is sent any more.
        self._sealer.join()
        self._stop_network()
        self._network.join()
        left, in_spool, _ = self._outbox.left()
        why = str(self._outbox.error or self._say_state())
        path = None if self._spool is None else self._spool.path
        report = Report(0, 0, path, why) if self._is_taken_back else Report(left, in_spool, path, why)
        self._outbox.fail(ClientClosedError(f"The client was closed before these were acknowledged. {report}"))
        if self._spool is not None:
            if self._is_taken_back:
                self._spool.clear()
            self._spool.close(is_empty=self._is_taken_back or left == 0)
        if report.left:
            log.log(logging.WARNING if report.in_spool == report.left else logging.ERROR, "%s", report)
        return report

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        report = self.close()
        if error is None and report.left > report.in_spool:
            raise NotSentError(str(report))

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.close(self._exit_s)

    # The process.

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError

    def _check(self) -> None:
        self._check_process()
        if self._report is not None:
            error = self._outbox.error
            raise error if isinstance(error, TakenBackError) else ClientClosedError()

    def forget(self) -> None:
        """In a forked child: close what the parent shares with it, so that the parent's end is seen."""
        connection = None if self._sender is None else self._sender.connection
        shared = [] if self._spool is None else [self._spool.lock_fd]
        shared += [] if connection is None else [connection.fileno]
        for number in shared:
            if number >= 0:
                with suppress(OSError):
                    os.close(number)


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _forget_in_child() -> None:
    for client in list(_clients):
        client.forget()
    _clients.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def _given_back(content: Content) -> "list[bytes] | pa.Table":
    payload = decompress(content.payload, LIMITS) if content.flags & Flag.COMPRESSED else content.payload
    if content.kind == FrameType.DELTA:
        return json_lines(payload, LIMITS)
    import pyarrow as pa

    return pa.ipc.open_stream(pa.py_buffer(payload)).read_all()


def _version() -> str:
    try:
        return version("tidemark")
    except PackageNotFoundError:
        return "unknown"


def connect(
    address: str,
    *,
    producer: str,
    token: str | None = None,
    spool: str | Path | None = None,
    levels: Iterable[LevelName | str] = (LevelName.FLUSHED,),
    rows: int = Bounds().rows,
    bytes: int = Bounds().bytes,  # noqa: A002 - what it bounds
    linger_s: float = Bounds().linger_s,
    memory_bytes: int = Bounds().memory_bytes,
    spool_bytes: int = Bounds().spool_bytes,
    priority: Priority | str = Priority.NORMAL,
    compress: bool = False,
    from_start: bool = False,
    whole_calls: bool = False,
    ssl: tls.SSLContext | None = None,
    longest_wait_s: float = MOST_S,
    random: Random | None = None,
    exit_s: float = EXIT_S,
) -> Client:
    """A client for the server at an address; it connects, and connects again, by itself.

    `producer` is its name: of the clients of one name only the newest may send. With `spool`, a directory of its own,
    deltas are on this machine's disk until the server has them, also when this program or the machine dies. `levels`
    are those that can be waited for. A write is closed with so many `rows` or `bytes`, or after `linger_s`. Up to
    `memory_bytes`, and with a spool up to `spool_bytes`, may be unacknowledged. Between two tries to connect the client
    waits longer and longer, up to `longest_wait_s`. `from_start` is for a source that is
    read again from its beginning: its writes are numbered from 1, and those that the server has are not sent again. It
    has to make the same calls each time, of which each is a write of its own (`whole_calls`).
    """
    whole_calls = whole_calls or from_start
    parse_address(address)
    if not is_name(producer):
        raise ClientError(
            f"{producer!r} is no name for a producer. Use a lower-case letter, then up to 62 of a-z, 0-9 and _."
        )
    if from_start and spool is not None:
        raise ClientError("A source that is read from its start is its own spool: leave out one of the two.")
    try:
        wanted = frozenset(map(LevelName, levels)) | {LevelName.FLUSHED}
        urgency = Priority(priority)
    except ValueError as error:
        raise ClientError(f"{error}. Levels are flushed and durable; priorities critical, high, normal, low.") from None
    if LevelName.APPLIED in wanted:
        raise ClientError("A client hears of writes once they are safe: levels are flushed and durable.")
    hello = Hello(
        token=token,
        producer=producer,
        levels=tuple(sorted(wanted)),
        compressions=("zstd",),
        priority=urgency,
        client=f"tidemark-python/{_version()}",
    )
    bounds = Bounds(
        min(rows, LIMITS.rows), min(bytes, LIMITS.unpacked_bytes), linger_s, memory_bytes, spool_bytes, whole_calls
    )
    return Client(
        address,
        hello,
        spool=None if spool is None else Path(spool),
        bounds=bounds,
        from_start=from_start,
        compress=compress,
        ssl=ssl,
        backoff=Backoff(random or SystemRandom(), min(FIRST_S, longest_wait_s), longest_wait_s),
        exit_s=exit_s,
    )
