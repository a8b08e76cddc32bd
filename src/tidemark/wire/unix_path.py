"""Unix sockets whose path is longer than the system takes.

Belongs here: a short name for such a path, for as long as a socket is bound or connected.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Of 108 bytes the last one is a zero.
_LONGEST = 107


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name under which the socket can be bound or connected here and now; homes may lie deep."""
    text = str(path)
    if len(os.fsencode(text)) <= _LONGEST:
        yield text
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
