"""An operating system that fails on demand: the n-th call of a kind, with a chosen error.

Belongs here: which calls may fail and how they then behave. It stands between a disk and its system, real or simulated.
"""

import errno
import os
import threading
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from chaos.kernel import Call, CallKind, SimulatedKernel, statvfs_of
from tidemark.storage.disk import System

T = TypeVar("T")

WRITES = frozenset({CallKind.PWRITE, CallKind.WRITE})
SYNCS = frozenset({CallKind.FDATASYNC, CallKind.FSYNC, CallKind.FSYNC_DIRECTORY})
EVERY_KIND = frozenset(CallKind)


class Fault(NamedTuple):
    """One fault."""

    kinds: frozenset[CallKind]  # which calls are counted
    nth: int  # the first of them that fails, from 1
    error: int | None = errno.EIO  # None: the call reports success; only for writes that are short
    written: int = 0  # bytes that a write passes on before it ends: then it is short, and the next one fails
    is_lasting: bool = False  # every later call of these kinds fails too


class FaultySystem:
    """Passes every call on, except those that must fail by the plan."""

    def __init__(self, system: System, plan: Sequence[Fault]) -> None:
        self.free_bytes: int | None = None  # the answer of `statvfs` instead of the truth
        self.trace: list[Call] = []  # every call that may fail, including those that did
        self._system = system
        self._plan = list(plan)
        self._seen = [0] * len(self._plan)
        self._paths: dict[int, Path] = {}
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        """Add a fault to the plan; its calls are counted from here on."""
        with self._lock:
            self._plan.append(fault)
            self._seen.append(0)

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:
        if flags & os.O_CREAT:
            self._pass(CallKind.CREATE, path)
        fd = self._system.open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def fdopen(self, fd: int, mode: Literal["rb"], /) -> BufferedIOBase:
        return self._system.fdopen(fd, mode)

    def close(self, fd: int, /) -> None:
        self._system.close(fd)

    def write(self, fd: int, data: memoryview, /) -> int:
        return self._system.write(fd, self._cut(CallKind.WRITE, fd, data))

    def pwrite(self, fd: int, data: memoryview, offset: int, /) -> int:
        return self._system.pwrite(fd, self._cut(CallKind.PWRITE, fd, data), offset)

    def posix_fallocate(self, fd: int, offset: int, size: int, /) -> None:
        self._pass(CallKind.ALLOCATE, self._paths[fd], size)
        self._system.posix_fallocate(fd, offset, size)

    def ftruncate(self, fd: int, size: int, /) -> None:
        self._pass(CallKind.TRUNCATE, self._paths[fd], size)
        self._system.ftruncate(fd, size)

    def fsync(self, fd: int, /) -> None:
        is_directory = (
            self._system.is_directory(fd) if isinstance(self._system, SimulatedKernel) else self._paths[fd].is_dir()
        )
        self._pass_sync(CallKind.FSYNC_DIRECTORY if is_directory else CallKind.FSYNC, fd)
        self._system.fsync(fd)

    def fdatasync(self, fd: int, /) -> None:
        self._pass_sync(CallKind.FDATASYNC, fd)
        self._system.fdatasync(fd)

    def rename(self, old: Path, new: Path, /) -> None:
        self._pass(CallKind.RENAME, new)
        self._system.rename(old, new)

    def unlink(self, path: Path, /) -> None:
        self._pass(CallKind.UNLINK, path)
        self._system.unlink(path)

    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:
        self._pass(CallKind.MKDIR, path)
        self._system.mkdir(path, mode)

    def listdir(self, path: Path, /) -> list[str]:
        return self._system.listdir(path)

    def stat(self, path: Path, /) -> os.stat_result:
        return self._system.stat(path)

    def fstat(self, fd: int, /) -> os.stat_result:
        return self._system.fstat(fd)

    def statvfs(self, path: Path, /) -> os.statvfs_result:
        return self._system.statvfs(path) if self.free_bytes is None else statvfs_of(self.free_bytes)

    def _pass(self, kind: CallKind, path: Path, size: int = 0) -> None:
        """Return if the call may go on."""
        if fault := self._fault(Call(kind, path, size)):
            raise _error(fault, path)

    def _pass_sync(self, kind: CallKind, fd: int) -> None:
        """As `_pass`; a simulated disk loses the data of a failed sync."""
        if fault := self._fault(Call(kind, self._paths[fd])):
            if isinstance(self._system, SimulatedKernel):
                self._system.fail_sync(fd)
            raise _error(fault, self._paths[fd])

    def _cut(self, kind: CallKind, fd: int, data: memoryview) -> memoryview:
        """The part of `data` to write."""
        fault = self._fault(Call(kind, self._paths[fd], len(data)))
        if fault is None:
            return data
        if not fault.written:
            raise _error(fault, self._paths[fd])
        if fault.error is not None:
            self.add(fault._replace(nth=1, written=0))
        return data[: fault.written]

    def _fault(self, call: Call) -> Fault | None:
        with self._lock:
            self.trace.append(call)
            hit = None
            for place, fault in enumerate(self._plan):
                if call.kind in fault.kinds:
                    self._seen[place] += 1
                    if self._seen[place] == fault.nth or (fault.is_lasting and self._seen[place] > fault.nth):
                        hit = fault
            return hit


def _error(fault: Fault, path: Path) -> OSError:
    if fault.error is None:
        raise ValueError("a call that is to fail needs an error; only a short write can do without one")
    return OSError(fault.error, os.strerror(fault.error), str(path))
