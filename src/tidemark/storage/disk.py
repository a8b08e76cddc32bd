"""The only door to the disk for everything that must survive a crash.

Belongs here: the few calls that the log, the seal and the plans need, and how each is made of system calls. A test
puts another operating system below the same code (`chaos/`): one that fails on demand, or one that forgets bytes that
were not fsynced. So the tested order of write, sync and rename is the one that runs.
"""

import contextlib
import errno
import mmap
import os
from io import BufferedIOBase
from pathlib import Path
from typing import Literal, Protocol

from tidemark.storage.privacy import directory_mode, file_mode


class Disk(Protocol):
    """The calls that a crash-safe writer needs, and nothing else."""

    def create(self, path: Path, size: int) -> int:
        """Create a file that must not exist, with `size` bytes of zeros reserved; return its descriptor.

        If there is no space for them, there is no file either.
        """

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""

    def sync(self, fd: int) -> None:
        """Return when the file's data is on the disk. Never to be repeated after an error."""

    def truncate(self, fd: int, size: int) -> None:
        """Give back the space reserved beyond `size`."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def is_named(self, fd: int, path: Path) -> bool:
        """Whether `path` still names the open file `fd`, and not another one or none."""

    def read(self, path: Path) -> bytes:
        """The whole file."""

    def map(self, path: Path) -> memoryview:
        """The whole file without a copy: only for one that no process writes meanwhile.

        If it is cut, the bytes that are cut off must not be read any more.
        """

    def open(self, path: Path) -> BufferedIOBase:
        """The file, to be read piece by piece: for files that need not fit into memory."""

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file (created if missing) and sync it, and its directory if it is new."""

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """Replace a whole file at once: temporary name, sync, rename, sync of the directory."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the disk."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename within a directory and sync the directory."""

    def remove(self, path: Path) -> None:
        """Remove a file and sync its directory."""

    def list(self, directory: Path) -> list[str]:
        """Names in a directory, sorted; none if it does not exist."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, and sync the directories that name them, even if they exist already.

        The process that made them may have been killed before the sync.
        """

    def free_bytes(self, path: Path) -> int:
        """Free space of the file system with `path`, which must exist."""


class System(Protocol):
    """The system calls that a `RealDisk` makes, under the names and with the errors of the module `os`."""

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int: ...
    def fdopen(self, fd: int, mode: Literal["rb"], /) -> BufferedIOBase: ...
    def close(self, fd: int, /) -> None: ...
    def write(self, fd: int, data: memoryview, /) -> int: ...
    def pwrite(self, fd: int, data: memoryview, offset: int, /) -> int: ...
    def posix_fallocate(self, fd: int, offset: int, size: int, /) -> None: ...
    def ftruncate(self, fd: int, size: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def rename(self, old: Path, new: Path, /) -> None: ...
    def unlink(self, path: Path, /) -> None: ...
    def mkdir(self, path: Path, mode: int = 0o777, /) -> None: ...
    def listdir(self, path: Path, /) -> list[str]: ...
    def stat(self, path: Path, /) -> os.stat_result: ...
    def fstat(self, fd: int, /) -> os.stat_result: ...
    def statvfs(self, path: Path, /) -> os.statvfs_result: ...


class RealDisk:
    """The disk behind a system's calls; by default those of this machine."""

    system: System = os

    def create(self, path: Path, size: int) -> int:
        fd = self.system.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, file_mode())
        try:
            self.system.posix_fallocate(fd, 0, size)
        except OSError:
            self.system.close(fd)
            self.system.unlink(path)
            raise
        return fd

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = self.system.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written

    def sync(self, fd: int) -> None:
        self.system.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self.system.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        self.system.close(fd)

    def is_named(self, fd: int, path: Path) -> bool:
        try:
            named, opened = self.system.stat(path), self.system.fstat(fd)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def read(self, path: Path) -> bytes:
        with self.open(path) as file:
            return file.read()

    def map(self, path: Path) -> memoryview:
        with self.open(path) as file:
            if self.system is not os:
                return memoryview(file.read())
            try:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except ValueError:  # the file is empty
                return memoryview(b"")

    def open(self, path: Path) -> BufferedIOBase:
        return self.system.fdopen(self.system.open(path, os.O_RDONLY), "rb")

    def append(self, path: Path, data: bytes) -> None:
        is_new = False
        try:
            fd = self.system.open(path, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            fd = self.system.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, file_mode())
            is_new = True
        self._write_and_sync(fd, data)
        if is_new:
            self.sync_directory(path.parent)

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        temporary = path.with_name(path.name + ".tmp")
        fd = self.system.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file_mode())
        self._write_and_sync(fd, data)
        self.rename(temporary, path)

    def sync_directory(self, path: Path) -> None:
        fd = self.system.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.system.fsync(fd)
        finally:
            self.system.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        self.system.rename(old, new)
        self.sync_directory(new.parent)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.system.unlink(path)
        self.sync_directory(path.parent)

    def list(self, directory: Path) -> list[str]:
        try:
            return sorted(self.system.listdir(directory))
        except FileNotFoundError:
            return []

    def make_directory(self, path: Path) -> None:
        for folder in reversed((path, *path.parents)):
            with contextlib.suppress(FileExistsError):
                self.system.mkdir(folder, directory_mode())
        for folder in path.parents:
            try:
                self.sync_directory(folder)
            except OSError as error:
                # A directory that we may not read, or on a file system without such a sync, is none that we made.
                if error.errno not in {errno.EACCES, errno.EPERM, errno.EINVAL}:
                    raise

    def free_bytes(self, path: Path) -> int:
        found = self.system.statvfs(path)
        return found.f_bavail * found.f_frsize

    def _write_and_sync(self, fd: int, data: bytes | memoryview) -> None:
        """Write all of `data`, then sync and close."""
        try:
            view = memoryview(data)
            while view:
                view = view[self.system.write(fd, view) :]
            self.system.fsync(fd)
        finally:
            self.system.close(fd)
