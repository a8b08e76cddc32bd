"""The control socket of a serving process: what other processes of the same machine ask of it.

Belongs here: one JSON line asked, one JSON line answered, on both sides. Commands that have to write to a log that
`serve` has open go through it (`writer`), and the other doors ask it for metrics and status. Only the home's owner can
open the socket.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from tidemark.coordinator.platform import Platform
from tidemark.event_time.clock import Clock, system_clock
from tidemark.gateway.places import control_socket, read_serving
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import Home
from tidemark.wire.unix_path import reachable

# Sealing everything takes seconds on a busy disk; a raised bound waits for one group.
ANSWER_S = 120.0
_LONGEST_LINE = 16 * 1024 * 1024


class Asked(Struct, omit_defaults=True):
    """A question or an order."""

    ask: str
    us: int = 0


class Answer(Struct, omit_defaults=True):
    """What came of it."""

    result: Any = None
    error: str | None = None


class ControlError(TidemarkError):
    """The serving process refused, or did not answer."""


class Writer(Protocol):
    """What commands do with a log besides sending: a platform of their own, or the one that is served."""

    def raise_earliest(self, earliest_us: int) -> None:
        """Refuse older events from now on."""

    def cut_vectors(self, cut_us: int) -> None:
        """Refuse older changes to vectors from now on."""

    def seal(self) -> None:
        """Seal everything that was taken."""


class RemoteWriter:
    """The platform that another process serves."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def raise_earliest(self, earliest_us: int) -> None:
        ask(self._home, Asked("raise_earliest", earliest_us))

    def cut_vectors(self, cut_us: int) -> None:
        ask(self._home, Asked("cut_vectors", cut_us))

    def seal(self) -> None:
        ask(self._home, Asked("seal"))


@contextmanager
def writer(home: Home, clock: Clock = system_clock) -> Iterator[Writer]:
    """The platform of a home for writing: that of the process which serves it, else one that is opened here."""
    if read_serving(home) is not None:
        yield RemoteWriter(home)
        return
    with Platform.open(home, clock=clock) as platform:
        yield platform


def seal_served(home: Home) -> None:
    """Let the process that serves a home seal what it has taken; nothing to do if none does."""
    if read_serving(home) is not None:
        RemoteWriter(home).seal()


def ask(home: Home, asked: Asked, timeout_s: float = ANSWER_S) -> Any:
    """Ask the process that serves a home; raises `ControlError`."""
    path = control_socket(home)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            with reachable(path) as name:
                connection.connect(name)
            connection.sendall(msgspec.json.encode(asked) + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline(_LONGEST_LINE)
    except OSError as error:
        raise ControlError(
            f"The process that serves {home.root} does not answer ({error}). See whether './tidemark serve' runs there."
        ) from error
    if not line:
        raise ControlError(f"The process that serves {home.root} ended before it answered. Nothing may have been done.")
    answer = msgspec.json.decode(line, type=Answer)
    if answer.error is not None:
        raise ControlError(answer.error)
    return answer.result


class ControlServer:
    """The serving side. `answers` is called for each question, on the loop."""

    def __init__(self, answers: Callable[[Asked], Awaitable[Any]]) -> None:
        self._answers = answers
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def listen(self, path: Path) -> None:
        """Answer on this socket."""
        path.unlink(missing_ok=True)
        with reachable(path) as name:
            self._server = await asyncio.start_unix_server(self._serve, name)
        path.chmod(0o600)
        self._path = path

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None and self._path is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await self._answer(line)) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # the peer has gone, or its line has no end
            return
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Answer:
        try:
            return Answer(await self._answers(msgspec.json.decode(line, type=Asked)))
        except (TidemarkError, msgspec.MsgspecError) as error:
            return Answer(error=str(error))
