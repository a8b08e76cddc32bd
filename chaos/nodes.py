"""Files and directories as a machine has them: what a reader sees, and which part of it is surely on the disk.

Belongs here: the content of one file and the names in one directory, since the last sync and before it. The rules
are those of a journaling POSIX file system, and no kinder:

- a sync of a file makes its data and its size durable, not its name; a sync of a directory makes its names durable;
- a sector (512 bytes) is written whole or not at all; each sector and the size of a file reach the disk on their own,
  in any order, at any time after the call; a sector that never did reads as zeros, not as another file's data;
- a name reaches the disk on its own as well, but a rename is one step: a file has its old name or its new one;
- a directory that is lost is lost with everything in it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from chaos.survival import SYNCED, Fate, Time

SECTOR = 512


class _Write(NamedTuple):
    number: int
    offset: int
    data: bytes

    def apply(self, content: bytearray) -> range:
        """Change the content; return the touched sectors."""
        _resize(content, max(len(content), self.offset))
        content[self.offset : self.offset + len(self.data)] = self.data
        return range(self.offset // SECTOR, -(-(self.offset + len(self.data)) // SECTOR))


class _Resize(NamedTuple):
    number: int
    size: int

    def apply(self, content: bytearray) -> range:
        """As for a write. Bytes beyond the end of a file are zeros, so growing changes no sector."""
        touched = range(self.size // SECTOR, -(-len(content) // SECTOR))
        _resize(content, self.size)
        return touched


class File:
    """The bytes of one file."""

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.content = bytearray(content)  # what a reader sees
        self._synced = bytearray(content)
        self._pending: list[_Write | _Resize] = []
        # What sectors may contain since a failed sync: no later sync writes it.
        self._lost: dict[int, list[tuple[Time, bytes]]] = {}

    def write(self, number: int, offset: int, data: bytes) -> None:
        """Write into the cache."""
        self._change(_Write(number, offset, data))

    def resize(self, number: int, size: int) -> None:
        """Cut the end off, or add zeros."""
        self._change(_Resize(number, size))

    def sync(self) -> None:
        """Make all changes since the last sync durable, successful or not."""
        for change in self._pending:
            for sector in change.apply(self._synced):
                self._lost.pop(sector, None)
        self._pending.clear()

    def fail_sync(self) -> None:
        """A sync failed, and its data count as written: Linux marks such pages clean.

        Some of them may have reached the disk. Only the size still has to be synced: it is in the journal.
        """
        sectors, sizes = self._options()
        self._lost = {sector: options[1:] for sector, options in sectors.items()}
        self._pending = [_Resize(sizes[-1][0][0], sizes[-1][1])] if len(sizes) > 1 else []

    def times(self) -> Iterator[Time]:
        """When each uncertain change happened."""
        sectors, sizes = self._options()
        for options in sectors.values():
            yield from (time for time, _ in options[1:])
        yield from (time for time, _ in sizes[1:])

    def after(self, fate: Fate) -> "File":
        """The file after a power cut."""
        if not self._pending and not self._lost:
            return File(self._synced)
        sectors, sizes = self._options()
        size = fate.size(sizes)
        content = bytearray(self._synced)
        _resize(content, SECTOR * max([-(-len(content) // SECTOR), *(sector + 1 for sector in sectors)]))
        for sector, options in sectors.items():
            content[sector * SECTOR : (sector + 1) * SECTOR] = fate.sector(options)
        _resize(content, size)
        return File(content)

    def _change(self, change: _Write | _Resize) -> None:
        self._pending.append(change)
        change.apply(self.content)

    def _options(self) -> tuple[dict[int, list[tuple[Time, bytes]]], list[tuple[Time, int]]]:
        """The possible contents of each uncertain sector, and the possible lengths of the file."""
        content = bytearray(self._synced)
        sectors = {sector: [(SYNCED, _sector(content, sector)), *lost] for sector, lost in self._lost.items()}
        sizes = [(SYNCED, len(content))]
        for change in self._pending:
            before = len(content)
            touched = change.apply(content)
            for place, sector in enumerate(touched):
                time = (change.number, place)
                sectors.setdefault(sector, [(SYNCED, _sector(self._synced, sector))])
                sectors[sector].append((time, _sector(content, sector)))
                # A file that grows need not grow at once.
                if before < (size := min(len(content), (sector + 1) * SECTOR)):
                    sizes.append((time, size))
            if len(content) != sizes[-1][1]:
                sizes.append(((change.number, len(touched)), len(content)))
        return sectors, sizes


class _Naming(NamedTuple):
    """A name appears, goes, or is replaced by another, in one step."""

    number: int
    node: "Node"
    new: str | None = None  # None: it goes


class Directory:
    """The names in one directory."""

    def __init__(self, entries: "dict[str, Node] | None" = None) -> None:
        self.entries = dict(entries or {})  # what a reader sees
        self._synced = dict(self.entries)
        self._pending: list[_Naming] = []

    def add(self, number: int, name: str, node: "Node") -> None:
        """Add a new file or directory."""
        self._pending.append(_Naming(number, node, name))
        self.entries[name] = node

    def rename(self, number: int, old: str, new: str) -> None:
        """Rename a file; a file that had the new name is gone."""
        node = self.entries.pop(old)
        self._pending.append(_Naming(number, node, new))
        self.entries[new] = node

    def remove(self, number: int, name: str) -> None:
        """Remove a name."""
        self._pending.append(_Naming(number, self.entries.pop(name)))

    def sync(self) -> None:
        """Make all changes since the last sync durable."""
        for change in self._pending:
            _name(self._synced, change)
        self._pending.clear()

    def fail_sync(self) -> None:
        """A sync failed. Names are in the journal, which forgets nothing: they stay as uncertain as they were."""

    def times(self) -> Iterator[Time]:
        """When each uncertain change happened, here and below."""
        for change in self._pending:
            yield (change.number, 0)
        below = {id(node): node for node in (*self._synced.values(), *(change.node for change in self._pending))}
        for node in below.values():
            yield from node.times()

    def after(self, fate: Fate) -> "Directory":
        """The directory, and all below it, after a power cut."""
        entries = dict(self._synced)
        for change in self._pending:
            if fate.keeps_name((change.number, 0)):
                _name(entries, change)
        return Directory({name: node.after(fate) for name, node in entries.items()})


Node = File | Directory


def _name(entries: dict[str, Node], change: _Naming) -> None:
    """Apply a change of names, even if one before it was forgotten: a file has one name or none."""
    for name in [name for name, node in entries.items() if node is change.node]:
        del entries[name]
    if change.new is not None:
        entries[change.new] = change.node


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _sector(content: bytearray, sector: int) -> bytes:
    return bytes(content[sector * SECTOR : (sector + 1) * SECTOR]).ljust(SECTOR, b"\0")
