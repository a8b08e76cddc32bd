"""The files of a manifest, as lines: one file per day, read from any place on, or backwards.

Belongs here: finding lines and where they begin. The content of a line, and whether it follows the one before, is in
`manifest.py`. No code reads a whole file at once, because a file grows with its day.
"""

import os
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

from tidemark.model.shard_errors import ManifestDamageError
from tidemark.model.timegrid import from_us
from tidemark.storage.disk import Disk

RESTORE = "Restore it from a backup; nothing was changed."
# Read at once when reading backwards: a few dozen lines.
_BLOCK = 64 * 1024


class Line(NamedTuple):
    """A line, without its newline."""

    name: str  # of its file
    start: int
    data: bytes
    is_last: bool = False  # nothing comes after it
    is_whole: bool = True  # it has its newline; only the very last may lack it

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.start + len(self.data) + 1


def day_file(sealed_us: int) -> str:
    """Name of the day's file; names sort as the days do."""
    return f"manifest-{from_us(sealed_us):%Y-%m-%d}.jsonl"


class DayFiles:
    """The files of one shard's manifest."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory, self._disk = directory, disk

    def names(self) -> list[str]:
        """The files that exist, in order."""
        names = self._disk.list(self._directory)
        return [name for name in names if name.startswith("manifest-") and name.endswith(".jsonl")]

    def last_before(self, is_before: Callable[[str], bool | None]) -> str:
        """The last file whose first line is before the wanted place, or else the first; empty if there is none.

        `is_before` returns None for a file without lines: a torn first line leaves one.
        """
        names = self.names()
        low, high, found = 0, len(names), 0
        while low < high:
            middle = place = (low + high) // 2
            while place >= low and (answer := is_before(names[place])) is None:
                place -= 1
            if place >= low and answer is False:
                high = place
            else:
                found, low = max(found, place if place >= low else 0), middle + 1
        return names[found] if names else ""

    def size(self, name: str) -> int:
        """How long a file is; 0 if there is none."""
        try:
            with self._disk.open(self._directory / name) as file:
                return file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            return 0

    def at(self, name: str, start: int) -> bytes | None:
        """The whole line that begins there, if there is one."""
        try:
            with self._disk.open(self._directory / name) as file:
                file.seek(start)
                line = file.readline()
        except FileNotFoundError:
            return None
        return line[:-1] if line.endswith(b"\n") else None

    def lines(self, from_name: str = "", start: int = 0) -> Iterator[Line]:
        """Every line from a place in a file on, including those of later files; without a name, all."""
        names = [name for name in self.names() if name >= from_name]
        for name in names:
            is_last_file = name == names[-1]
            with self._disk.open(self._directory / name) as file:
                size = file.seek(0, os.SEEK_END)
                at = file.seek(start if name == from_name else 0)
                while line := file.readline():
                    is_whole = line.endswith(b"\n")
                    if not is_whole and not is_last_file:
                        raise ManifestDamageError(
                            f"{self._directory / name} ends in half a line, but a later file exists. {RESTORE}"
                        )
                    data = line[:-1] if is_whole else line
                    yield Line(name, at, data, is_last_file and at + len(line) >= size, is_whole)
                    at += len(line)

    def backwards(self, name: str, end: int) -> Iterator[bytes]:
        """The lines before a place in a file, the last one first; then those of the earlier files."""
        for each in reversed([known for known in self.names() if known <= name]):
            with self._disk.open(self._directory / each) as file:
                yield from _backwards(file, end if each == name else file.seek(0, os.SEEK_END))


def _backwards(file: BufferedIOBase, end: int) -> Iterator[bytes]:
    rest = b""  # the beginning of the block read last: perhaps only the end of a line
    while end > 0:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        *lines, last = (file.read(end - begin) + rest).split(b"\n")
        end = begin
        if begin > 0 and not lines:
            rest = last
            continue
        # Every line ends in a newline, so the text after the last one is empty, or was yielded before.
        if begin > 0:
            rest, lines = lines[0] + b"\n", lines[1:]
        yield from reversed(lines)
