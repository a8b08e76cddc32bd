"""The spool: writes on this machine's disk until the server has them (Q2).

Belongs here: which files there are, what is kept beside them, and who may use them. A write is numbered when it is
appended, and keeps its number and its content whatever restarts. The bytes of a file are in `spool_file.py`.

    lock         held while a client uses the spool
    state.json   whose spool it is, and what its numbers mean to the server
    0…1.spool    writes from number 1 on; further files are begun as they grow, and removed once they are acknowledged
"""

import fcntl
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import google_crc32c
import msgspec
from msgspec import Struct

from tidemark.client.batches import Content
from tidemark.client.errors import SpoolBusyError, SpoolDamageError, SpoolError
from tidemark.client.spool_file import Place, decode_write, encode_group, read_file, sync_directory

# A file that is larger is followed by another one: acknowledged writes leave the disk in steps of this size.
FILE_BYTES = 8 * 1024 * 1024


class SpoolState(Struct):
    """What is known beside the writes themselves."""

    producer: str
    version: int = 1
    # Added to the numbers here, it makes those of the protocol. Known once the server has told its mark, and fixed
    # before anything is sent.
    base: int | None = None
    instance: int = 0
    home: str = ""  # which platform the numbers are for
    next: int = 1  # no write here has this number or a higher one, unless a file has it


class Spool:
    """An open spool. Appending is for one thread; reading and acknowledging are for another one."""

    def __init__(self, path: Path, producer: str, file_bytes: int = FILE_BYTES) -> None:
        self.path, self._file_bytes = path, file_bytes
        self.torn_bytes = 0  # that a crash had left behind the last whole write
        self._places: dict[int, Place] = {}
        self._files: deque[tuple[Path, int]] = deque()  # with the first number of each
        self._out: int | None = None
        self._readers: dict[Path, int] = {}
        self._end = 0
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.lock_fd = _lock(path)
        except OSError as error:
            raise SpoolError(f"Spool {path} cannot be used: {error}. Give a directory that is writable.") from error
        try:
            self.state = self._read_state(producer)
            self._read_files()
        except BaseException:
            os.close(self.lock_fd)
            raise

    # Opening.

    def _read_state(self, producer: str) -> SpoolState:
        file = self.path / "state.json"
        if not file.exists():
            if any(self.path.glob("*.spool")):
                raise SpoolDamageError(f"{file} is missing: what the numbers of the writes mean is not known.")
            self.state = SpoolState(producer)
            self.save()
            return self.state
        text, _, checksum = file.read_bytes().partition(b"\n")
        try:
            if int(checksum, 16) != google_crc32c.value(text):
                raise SpoolDamageError(f"{file} is damaged: its checksum is wrong. Restore it from a copy.")
            state = msgspec.json.decode(text, type=SpoolState)
        except (ValueError, msgspec.MsgspecError) as error:
            raise SpoolDamageError(f"{file} is damaged: {error}. Restore it from a copy.") from error
        if state.producer != producer:
            raise SpoolError(
                f"Spool {self.path} belongs to producer {state.producer!r}, and this is {producer!r}. Each producer "
                "needs a spool of its own."
            )
        return state

    def _read_files(self) -> None:
        names = sorted(self.path.glob("*.spool"))
        following: int | None = None
        for file in names:
            first = int(file.stem)
            if following is not None and first != following:
                raise SpoolDamageError(
                    f"{self.path} has no file with writes {following} to {first - 1}: it was removed. Restore it, or "
                    "move the whole spool away and send again from the source what was not acknowledged."
                )
            found = read_file(file, first, is_last=file is names[-1])
            if file is names[-1]:
                self._cut(file, found.end)
            if found.places:
                self._files.append((file, first))
                self._places |= found.places
            following = first + len(found.places)
        if following is not None:
            self.state.next = max(self.state.next, following)

    def _cut(self, file: Path, end: int) -> None:
        """Remove what a crash has torn. It had never been sent."""
        self.torn_bytes = file.stat().st_size - end
        if end == 0:
            file.unlink()
            sync_directory(self.path)
            return
        self._out = os.open(file, os.O_RDWR)
        if self.torn_bytes:
            os.ftruncate(self._out, end)
            os.fsync(self._out)
        os.lseek(self._out, end, os.SEEK_SET)
        self._end = end

    # Using.

    @property
    def waiting(self) -> list[tuple[int, Place]]:
        """Every write that is here, in order."""
        return sorted(self._places.items())

    def append(self, writes: Sequence[Content]) -> int:
        """Put writes on the disk, all at once; returns the number of the first. They count once this has returned."""
        first = self.state.next
        try:
            out = self._out
            if out is None or self._end >= self._file_bytes:
                out = self._begin_file(first)
            file, _ = self._files[-1]
            data, places = encode_group(first, writes, file, self._end)
            _write_all(out, data)
            os.fsync(out)
            if self._end == 0:
                sync_directory(self.path)
        except OSError as error:
            raise SpoolError(
                f"The spool {self.path} cannot be written: {error}. What was spooled before is kept. Make room or "
                "repair the disk, and connect again."
            ) from error
        self._end += len(data)
        self._places |= places
        self.state.next = first + len(writes)
        return first

    def _begin_file(self, first: int) -> int:
        if self._out is not None:
            os.close(self._out)
        file = self.path / f"{first:020d}.spool"
        self._out = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._files.append((file, first))
        self._end = 0
        return self._out

    def read(self, number: int) -> Content:
        """A write as it was appended."""
        place = self._places[number]
        if place.file not in self._readers:
            self._readers[place.file] = os.open(place.file, os.O_RDONLY)
        content = decode_write(number, os.pread(self._readers[place.file], place.length, place.offset))
        if content is None:
            raise SpoolDamageError(
                f"Write {number} in {place.file} is no longer what was written: the disk has damaged it. It was not "
                "sent. Restore the file, or move the spool away and send it again from its source."
            )
        return content

    def acknowledge(self, number: int) -> None:
        """The server has everything up to this number. Files of which nothing else is needed are removed."""
        while len(self._files) > 1 and self._files[1][1] <= number + 1:
            file, first = self._files.popleft()
            self._close_reader(file)
            file.unlink()
            sync_directory(self.path)  # one after another: no gap can be left
            for each in range(first, self._files[0][1]):
                del self._places[each]

    def save(self) -> None:
        """Put the state on the disk, in one step."""
        text = msgspec.json.encode(self.state)
        new = self.path / "state.json.new"
        with new.open("wb") as file:
            file.write(text + f"\n{google_crc32c.value(text):08x}".encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / "state.json")
        sync_directory(self.path)

    def close(self, *, is_empty: bool) -> None:
        """Give the spool back. If everything is acknowledged, nothing but the state stays."""
        if self._out is not None:
            os.close(self._out)
        for file in list(self._readers):
            self._close_reader(file)
        if is_empty:
            self.save()  # first: the next number is not used again
            for file, _ in self._files:
                file.unlink(missing_ok=True)
            sync_directory(self.path)
        os.close(self.lock_fd)

    def clear(self) -> None:
        """Forget everything: the next client numbers on from the server's mark. The lock stays."""
        for file, _ in self._files:
            self._close_reader(file)
            file.unlink(missing_ok=True)
        self._files.clear()
        self._places.clear()
        self.state = SpoolState(self.state.producer)

    def _close_reader(self, file: Path) -> None:
        with suppress(KeyError):
            os.close(self._readers.pop(file))


def _lock(path: Path) -> int:
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise SpoolBusyError(path) from error
    return lock


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
