"""Runs a command while it alone holds a lock: `with_lock.py LOCKFILE COMMAND...`.

The lock belongs to the open file, which the command inherits, and ends with the last process that has it open. So a
set-up that was killed leaves no stale lock, and a tool that outlives its killed parent still keeps others out.
"""

import fcntl
import os
import sys
from pathlib import Path

INHERITED_FD = 9  # setup/install closes this number in helpers that must not keep the lock


def take_lock(path: Path) -> int:
    """Wait for the lock, say so if it takes waiting, and return the open file that holds it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("tidemark: another call is setting up; waiting for it ...\n")
            fcntl.flock(fd, fcntl.LOCK_EX)
        # Somebody may have deleted .venv while we waited: a lock on a file without a name keeps nobody out.
        if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
            return fd
        os.close(fd)


if __name__ == "__main__":
    try:
        os.dup2(take_lock(Path(sys.argv[1])), INHERITED_FD)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"tidemark: cannot lock {sys.argv[1]}: {error.strerror}.")
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  the command is setup/install itself
