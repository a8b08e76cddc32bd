"""The only door to the disk for everything that must survive a crash.

Belongs here: the few calls that the log, the seal and the plans need, and their real implementation. A test puts
another disk behind the same door: one that fails on demand, or one that forgets what was not fsynced.
"""

import contextlib
import os
import shutil
from io import BufferedIOBase
from pathlib import Path
from typing import Protocol


class Disk(Protocol):
    """What a crash-safe writer needs, and nothing else."""

    def create(self, path: Path, size: int) -> int:
        """Create a file that must not exist, with `size` bytes of zeros set aside; give its descriptor."""

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""

    def sync(self, fd: int) -> None:
        """Return when the file's data is on the disk. Never to be repeated after an error."""

    def truncate(self, fd: int, size: int) -> None:
        """Give back what was set aside beyond `size`."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def read(self, path: Path) -> bytes:
        """The whole file."""

    def open(self, path: Path) -> BufferedIOBase:
        """The file, to be read piece by piece: for files that need not fit into memory."""

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file (created if missing) and sync it, and its directory if it is new."""

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """Put a whole file in place at once: temporary name, sync, rename, sync of the directory."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the disk."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename within a directory and sync the directory."""

    def remove(self, path: Path) -> None:
        """Remove a file and sync its directory."""

    def list(self, directory: Path) -> list[str]:
        """Names in a directory, sorted; none if it does not exist."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, and sync what names them."""

    def free_bytes(self, path: Path) -> int:
        """How much more can be written to the file system that holds `path`, which must exist."""


class RealDisk:
    """The operating system's disk."""

    def create(self, path: Path, size: int) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.posix_fallocate(fd, 0, size)
        return fd

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def open(self, path: Path) -> BufferedIOBase:
        return path.open("rb")

    def append(self, path: Path, data: bytes) -> None:
        is_new = not path.exists()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        if is_new:
            self.sync_directory(path.parent)

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self.rename(temporary, path)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)
        self.sync_directory(new.parent)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self.sync_directory(path.parent)

    def list(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory)) if directory.exists() else []

    def make_directory(self, path: Path) -> None:
        missing = [path, *path.parents]
        missing = [folder for folder in missing if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            self.sync_directory(folder.parent)

    def free_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).free
