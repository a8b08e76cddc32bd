"""Where the warm host of a home is found: its folder, its socket, and how messages go through that.

Belongs here: paths and the form of messages. Nothing but the standard library and the home is imported here: a command
should have handed itself over before it would have imported anything else.
"""

import contextlib
import fcntl
import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark.storage.home import Below, Home

# `0` forbids it: commands and runs are processes with a JVM of their own.
VARIABLE = "TIDEMARK_WARM"
# Seconds without work after which it ends; instead of the setting.
IDLE_VARIABLE = "TIDEMARK_WARM_IDLE_S"
# Standard input, output and errors of whoever asks.
STREAMS = (0, 1, 2)
# An environment has a few kilobytes; whatever is longer is no request.
LONGEST = 16 * 1024 * 1024
_LENGTH = struct.Struct("!I")


class BrokenMessageError(OSError):
    """The other side has gone, or it sent something else."""


@dataclass(frozen=True)
class Place:
    """The files of a home's warm host. Only its owner may look into the folder."""

    root: Path

    lock = Below("lock", "Held by the host while it takes requests: there is one at most.")
    state = Below("state.json", "What `status` shows.")
    log = Below("log", "What it printed, for debugging.")
    door = Below("socket", "Where it takes requests.")

    @classmethod
    def of(cls, home: Home) -> "Place":
        """The place of a home."""
        return cls(home.host)

    def make(self) -> None:
        """Make the folder: closed to all others, also in a home that is open to its group."""
        self.root.mkdir(mode=0o700, exist_ok=True)
        self.root.chmod(0o700)

    @contextlib.contextmanager
    def address(self) -> Iterator[str]:
        """The socket under a short name: the system takes 108 bytes at most, and homes may lie deeper."""
        folder = os.open(self.root, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{self.door.name}"
        finally:
            os.close(folder)

    def listen(self) -> socket.socket:
        """Take requests from now on; only for the holder of the lock, because it replaces what a dead one left."""
        self.door.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self.address() as address:
            listener.bind(address)
        self.door.chmod(0o600)
        listener.listen(64)
        return listener

    def connect(self) -> socket.socket | None:
        """A connection to a host of this user, if there is one that listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self.address() as address:
                connection.connect(address)
        except OSError:
            connection.close()
            return None
        if user_of(connection) != os.geteuid():
            connection.close()  # another user's: it would do our work as that user
            return None
        return connection

    def is_taken(self) -> bool:
        """Whether a host runs that takes requests."""
        try:
            lock = os.open(self.lock, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def read_state(self) -> dict[str, Any] | None:
        """What the running host says of itself; None if none is running."""
        try:
            found = json.loads(self.state.read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and self.is_taken() else None


def user_of(connection: socket.socket) -> int:
    """Whose process is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def is_gone(connection: socket.socket) -> bool:
    """Whether the other side has closed this connection, which has no timeout. What it said before is left in it."""
    try:
        return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def send(connection: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    """Send a message, and open files with it."""
    text = json.dumps(message).encode(errors="surrogateescape")
    head = _LENGTH.pack(len(text))
    if files:
        socket.send_fds(connection, [head], list(files))
    else:
        connection.sendall(head)
    connection.sendall(text)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message, and the files that came with it."""
    head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, len(STREAMS))
    try:
        length = _LENGTH.unpack(head + _exactly(connection, _LENGTH.size - len(head)))[0]
        if length > LONGEST:
            raise BrokenMessageError(f"A message of {length} bytes is none of ours.")
        message = json.loads(_exactly(connection, length).decode(errors="surrogateescape"))
        if not isinstance(message, dict):
            raise BrokenMessageError("A message is an object.")
    except (OSError, ValueError) as error:
        for file in files:
            os.close(file)
        raise BrokenMessageError(f"No message came: {error}") from error
    return message, files


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise BrokenMessageError("The other side has gone.")
        parts += part
    return bytes(parts)
