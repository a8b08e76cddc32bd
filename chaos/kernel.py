"""An operating system in memory: the system calls of a `RealDisk`, on files that forget what was not synced.

Belongs here: paths, descriptors and errors as on Linux, the count of calls, and the time at which the power goes.
`nodes.py` and `survival.py` decide what is left then.
"""

import copy
import errno
import os
import threading
from collections.abc import Callable
from enum import Enum, StrEnum
from io import BufferedIOBase, BytesIO
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, TypeVar

from chaos.nodes import Directory, File, Node
from chaos.survival import Survival, fate_of

T = TypeVar("T")

# A disk that never fills: 1 TB.
FREE_BYTES = 10**12


class PowerCut(BaseException):
    """The machine is off. No program could handle this error, so not even `except Exception` catches it."""


class CallKind(StrEnum):
    """A system call that changes something or makes it durable."""

    CREATE = "create"  # an `open` that makes a file, or empties one
    ALLOCATE = "allocate"
    PWRITE = "pwrite"  # into the log
    WRITE = "write"  # into any other file
    TRUNCATE = "truncate"
    FDATASYNC = "fdatasync"  # of the log
    FSYNC = "fsync"  # of any other file
    FSYNC_DIRECTORY = "fsync_directory"
    RENAME = "rename"
    UNLINK = "unlink"
    MKDIR = "mkdir"


class Call(NamedTuple):
    """One call, for the trace."""

    kind: CallKind
    path: Path
    size: int = 0  # bytes, of a write


class Moment(Enum):
    """When the power goes at a call."""

    BEFORE = "before"
    MIDDLE = "middle"  # half of a write was passed on; of any other call, nothing
    AFTER = "after"


class _Open(NamedTuple):
    """An open file; `position` is None if every write goes to the end."""

    node: Node
    path: Path
    position: list[int] | None


# Called with each call, and the machine as it is before it or in the middle of it; may not change that.
Watcher = Callable[[Call, Moment, "SimulatedKernel"], None]


class SimulatedKernel:
    """See `tidemark.storage.disk.System` for the calls. Any thread may make them, one at a time."""

    def __init__(self, root: Directory | None = None, number: int = 0) -> None:
        self.trace: list[Call] = []  # the calls of this life
        self.on_call: Watcher | None = None
        self._root = root or Directory()
        self._number = number  # of the last change, counted over all lives
        # Not to be mistaken for a real descriptor: there are never that many.
        self._descriptors = count(1_000_000)
        self._open: dict[int, _Open] = {}
        self._cut_at: tuple[int, Moment] | None = None
        self._is_off = False
        self._lock = threading.RLock()

    def cut_power(self, at: int, moment: Moment) -> None:
        """Let the power go at a call, counted from 1 since the start of this life."""
        self._cut_at = (at, moment)

    def stop(self) -> None:
        """Switch the machine off; a thread that still runs on it is stopped at its next call."""
        with self._lock:
            self._is_off = True

    def after(self, mode: Survival, random: Random) -> "SimulatedKernel":
        """The machine when the power comes back, if it went now."""
        with self._lock:
            if mode is Survival.CACHE:
                return SimulatedKernel(copy.deepcopy(self._root), self._number)
            fate = fate_of(mode, random, list(self._root.times()))
            return SimulatedKernel(self._root.after(fate), self._number)

    def fail_sync(self, fd: int) -> None:
        """Let the file or directory behave as after an fsync that failed."""
        with self._lock:
            self._file(fd).node.fail_sync()

    def is_directory(self, fd: int) -> bool:
        """Whether a descriptor is that of a directory."""
        return isinstance(self._file(fd).node, Directory)

    def store(self, path: Path, data: bytes) -> None:
        """Put a file on the disk directly, all of it synced, whatever was there: to try out damage."""
        folder, name = self._place(path)
        if name in folder.entries:
            folder.remove(0, name)
        folder.add(0, name, File(data))
        folder.sync()

    # From here on: the system calls.

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:  # noqa: ARG002 - there are no permissions here
        with self._lock:
            self._refuse_if_off()
            folder, name = self._place(path)
            node = folder.entries.get(name) if name else folder  # only the root has no name
            if node is None:
                if not flags & os.O_CREAT:
                    raise _error(errno.ENOENT, path)
                node = self._call(Call(CallKind.CREATE, path), lambda number: self._create(folder, number, name))
            elif flags & os.O_EXCL:
                raise _error(errno.EEXIST, path)
            elif isinstance(node, File):
                if flags & os.O_DIRECTORY:
                    raise _error(errno.ENOTDIR, path)
                if flags & os.O_TRUNC and node.content:
                    file = node
                    self._call(Call(CallKind.CREATE, path), lambda number: file.resize(number, 0))
            elif flags & (os.O_WRONLY | os.O_RDWR):
                raise _error(errno.EISDIR, path)
            fd = next(self._descriptors)
            self._open[fd] = _Open(node, path, None if flags & os.O_APPEND else [0])
            return fd

    def fdopen(self, fd: int, mode: Literal["rb"], /) -> BufferedIOBase:  # noqa: ARG002 - there is no other
        with self._lock:
            self._refuse_if_off()
            node = self._file(fd).node
            if isinstance(node, Directory):
                raise _error(errno.EISDIR, self._open.pop(fd).path)
            del self._open[fd]
            return BytesIO(node.content)

    def close(self, fd: int, /) -> None:
        with self._lock:
            self._refuse_if_off()
            self._file(fd)
            del self._open[fd]

    def write(self, fd: int, data: memoryview, /) -> int:
        with self._lock:
            found = self._file(fd)
            if found.position is None:
                return self._write(CallKind.WRITE, found, data, len(self._content(found).content))
            written = self._write(CallKind.WRITE, found, data, found.position[0])
            found.position[0] += written
            return written

    def pwrite(self, fd: int, data: memoryview, offset: int, /) -> int:
        with self._lock:
            return self._write(CallKind.PWRITE, self._file(fd), data, offset)

    def posix_fallocate(self, fd: int, offset: int, size: int, /) -> None:
        with self._lock:
            found = self._file(fd)
            file = self._content(found)
            if size <= 0:
                raise _error(errno.EINVAL, found.path)
            size = max(len(file.content), offset + size)
            self._call(Call(CallKind.ALLOCATE, found.path, size), lambda number: file.resize(number, size))

    def ftruncate(self, fd: int, size: int, /) -> None:
        with self._lock:
            found = self._file(fd)
            file = self._content(found)
            self._call(Call(CallKind.TRUNCATE, found.path, size), lambda number: file.resize(number, size))

    def fsync(self, fd: int, /) -> None:
        with self._lock:
            found = self._file(fd)
            kind = CallKind.FSYNC_DIRECTORY if isinstance(found.node, Directory) else CallKind.FSYNC
            self._call(Call(kind, found.path), lambda _: found.node.sync())

    def fdatasync(self, fd: int, /) -> None:
        with self._lock:
            found = self._file(fd)
            self._call(Call(CallKind.FDATASYNC, found.path), lambda _: found.node.sync())

    def rename(self, old: Path, new: Path, /) -> None:
        with self._lock:
            folder, name = self._place(old)
            target, new_name = self._place(new)
            if name not in folder.entries:
                raise _error(errno.ENOENT, old)
            if target is not folder:
                raise _error(errno.EXDEV, new)  # the product never renames across directories
            if isinstance(target.entries.get(new_name), Directory):
                raise _error(errno.EISDIR, new)
            if new_name != name:
                self._call(Call(CallKind.RENAME, new), lambda number: folder.rename(number, name, new_name))

    def unlink(self, path: Path, /) -> None:
        with self._lock:
            folder, name = self._place(path)
            if name not in folder.entries:
                raise _error(errno.ENOENT, path)
            if isinstance(folder.entries[name], Directory):
                raise _error(errno.EISDIR, path)
            self._call(Call(CallKind.UNLINK, path), lambda number: folder.remove(number, name))

    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:  # noqa: ARG002 - there are no permissions here
        with self._lock:
            folder, name = self._place(path)
            if not name or name in folder.entries:
                raise _error(errno.EEXIST, path)
            self._call(Call(CallKind.MKDIR, path), lambda number: folder.add(number, name, Directory()))

    def listdir(self, path: Path, /) -> list[str]:
        with self._lock:
            return list(self._directory(path).entries)

    def stat(self, path: Path, /) -> os.stat_result:
        with self._lock:
            folder, name = self._place(path)
            if name and name not in folder.entries:
                raise _error(errno.ENOENT, path)
            return _stat_of(folder.entries[name] if name else folder)

    def fstat(self, fd: int, /) -> os.stat_result:
        with self._lock:
            return _stat_of(self._file(fd).node)

    def statvfs(self, path: Path, /) -> os.statvfs_result:
        with self._lock:
            folder, name = self._place(path)
            if name and name not in folder.entries:
                raise _error(errno.ENOENT, path)
            return statvfs_of(FREE_BYTES)

    def _call(self, call: Call, effect: Callable[[int], T]) -> T:
        """Execute a call with a number for its change, unless the power goes before it; or cut the power after it."""
        self._refuse_if_off()
        if self.on_call is not None:
            self.on_call(call, Moment.BEFORE, self)
        self.trace.append(call)
        self._number += 1
        if self._cut_at is None or len(self.trace) < self._cut_at[0]:
            return effect(self._number)
        if self._cut_at[1] is Moment.AFTER:
            effect(self._number)
        self._is_off = True
        raise PowerCut(f"{self._cut_at[1].value} call {len(self.trace)}, {call.kind} {call.path}")

    def _write(self, kind: CallKind, found: _Open, data: memoryview, offset: int) -> int:
        file, whole = self._content(found), bytes(data)
        call, half = Call(kind, found.path, len(whole)), whole[: len(whole) // 2]
        if (len(self.trace) + 1, Moment.MIDDLE) == self._cut_at:
            self._number += 1
            file.write(self._number, offset, half)
        if self.on_call is not None:
            copies: dict[int, Any] = {}
            then = SimulatedKernel(copy.deepcopy(self._root, copies), self._number + 1)
            if id(file) in copies:  # else it has no name, and no reader will ever find it
                copies[id(file)].write(self._number + 1, offset, half)
                self.on_call(call, Moment.MIDDLE, then)
        self._call(call, lambda number: file.write(number, offset, whole))
        return len(whole)

    def _refuse_if_off(self) -> None:
        if self._is_off:
            raise PowerCut("the machine is off")

    def _create(self, folder: Directory, number: int, name: str) -> File:
        file = File()
        folder.add(number, name, file)
        return file

    def _directory(self, path: Path) -> Directory:
        self._refuse_if_off()
        node: Node = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                raise _error(errno.ENOTDIR, path)
            if name not in node.entries:
                raise _error(errno.ENOENT, path)
            node = node.entries[name]
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def _place(self, path: Path) -> tuple[Directory, str]:
        """The directory of `path`, which need not exist itself."""
        return self._directory(path.parent), path.name

    def _file(self, fd: int) -> _Open:
        self._refuse_if_off()
        if fd not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._open[fd]

    def _content(self, found: _Open) -> File:
        if isinstance(found.node, Directory):
            raise _error(errno.EISDIR, found.path)
        return found.node


def statvfs_of(free_bytes: int) -> os.statvfs_result:
    """The answer of a file system with so much free space."""
    return os.statvfs_result((1, 1, 2 * FREE_BYTES, free_bytes, free_bytes, 10**6, 10**6, 10**6, 0, 255))


def _stat_of(node: Node) -> os.stat_result:
    """The fields that tell one file from another; the rest does not matter here."""
    return os.stat_result((0, id(node), 0, 1, 0, 0, 0, 0, 0, 0))


def _parts(path: Path) -> tuple[str, ...]:
    return path.parts[1:] if path.is_absolute() else path.parts


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
