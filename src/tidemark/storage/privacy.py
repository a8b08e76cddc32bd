"""Who may read a home: its owner, and its group if the owner opened the directory to it.

Belongs here: the modes of new files and directories, and the umask of our own processes. A home is opened to its group
by `chmod 750` on its directory, and by nothing else (decision 0045). In our own processes the umask covers everything,
also files that Spark, delta-rs and Dagster write. A program that only uses the library has its own umask, which we do
not change: files made through `file_mode` and `directory_mode` are private all the same.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE, GROUP_MAY_READ = 0o077, 0o027  # as umasks: the rights that are withheld


class _Process:
    """What this process withholds, and the umask it was started with if it was changed."""

    withheld = PRIVATE
    found: int | None = None


def file_mode() -> int:
    """The mode for a new file in a home."""
    return 0o666 & ~_Process.withheld


def directory_mode() -> int:
    """The mode for a new directory in a home."""
    return 0o777 & ~_Process.withheld


def make_directory(path: Path) -> None:
    """Make a directory in a home, and missing parents: each with the mode of a home."""
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            folder.mkdir(mode=directory_mode(), exist_ok=True)


def make_private(path: str | Path, flags: int) -> int:
    """Open a file, for `open(..., opener=make_private)`: a new one gets the mode of this home."""
    return os.open(path, flags, file_mode())


def make_owners_directory(path: Path) -> None:
    """Make a directory for its owner alone, also in a home that is open to its group: for sockets and secrets."""
    make_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)


def make_owners(path: str | Path, flags: int) -> int:
    """Open a file, for `open(..., opener=make_owners)`: a new one is its owner's alone, whatever the home's mode."""
    return os.open(path, flags, 0o600)


def withheld_by(root: Path) -> int:
    """The umask of a home, by the mode of its directory; `PRIVATE` if it does not exist yet."""
    try:
        mode = root.stat().st_mode
    except OSError:
        return PRIVATE
    return GROUP_MAY_READ if mode & 0o057 == 0o050 else PRIVATE


def follow(root: Path) -> None:
    """Use this home's umask from now on; in a process of ours, for everything that it makes."""
    _Process.withheld = withheld_by(root)
    if _Process.found is not None:
        os.umask(_Process.withheld)


def take_process() -> None:
    """Make all files private that this process, and its children, will write; only for processes of our own."""
    previous = os.umask(_Process.withheld)
    if _Process.found is None:
        _Process.found = previous


@contextmanager
def as_user_asked() -> Iterator[None]:
    """The umask that the process was started with, for a file that a user wants outside of the home."""
    if _Process.found is None:
        yield
        return
    ours = os.umask(_Process.found)
    try:
        yield
    finally:
        os.umask(ours)


def tighten(root: Path) -> None:
    """Close a home to all but its owner, unless it was opened to its group (and no other) on purpose.

    The directory alone is enough, because it bars the way to everything in it. A shared one such as /tmp is not ours to
    close.
    """
    mode = root.stat().st_mode
    if mode & 0o027 and not mode & stat.S_ISVTX:
        try:
            root.chmod(0o700)
        except PermissionError:
            return  # another user's, who opens it next
