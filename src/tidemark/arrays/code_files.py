"""Machine code in a file: written whole or not at all, and checked before it runs.

Belongs here: the format of such a file, how it is written and how it is read. `compiled.py` decides what is in it, and
when. A process that jumps into damaged machine code dies silently, or worse, goes on. So a file counts only if every
byte is as written, for exactly the inputs that the reader names; any other file counts as missing. Nothing here raises:
a cache that cannot be read or written costs time and nothing else.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

# Ours are a few kilobytes. A file that claims to be larger is not read into memory.
SIZE_LIMIT = 16 * 1024 * 1024
_MAGIC = b"tidemark machine code 2\n"
_DIGEST = hashlib.sha256().digest_size


class Code(NamedTuple):
    """An object file, and the name of its entry."""

    entry: str
    code: bytes


def pack(made_from: str, code: Code) -> bytes:
    """The content of a file: its format, a checksum over the rest, the entry's name and the code."""
    body = code.entry.encode() + b"\n" + code.code
    return _MAGIC + _checksum(made_from, body) + body


def unpack(made_from: str, content: bytes) -> Code | None:
    """The packed code, if the content is whole, unchanged, and made from the same inputs; otherwise None."""
    start = len(_MAGIC) + _DIGEST
    body = content[start:]
    if content[:start] != _MAGIC + _checksum(made_from, body):
        return None
    entry, _, code = body.partition(b"\n")
    return Code(entry.decode(), code)


def _checksum(made_from: str, body: bytes) -> bytes:
    """The body's length is hashed, too, so that nothing can move from one part into another."""
    said = made_from.encode()
    return hashlib.sha256(b"%d %d\n" % (len(said), len(body)) + said + body).digest()


def read_code(path: Path, made_from: str, source: Path) -> Code | None:
    """The machine code in a file, if it is whole, for these inputs, and owned by a trusted user."""
    try:
        # Opening a pipe would block, and a link may lead anywhere.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            trusted = {0, os.geteuid(), source.stat().st_uid}
            if not stat.S_ISREG(found.st_mode) or found.st_uid not in trusted or found.st_size > SIZE_LIMIT:
                return None
            # Read once: what is checked is what runs, even if the file changes meanwhile.
            return unpack(made_from, file.read(SIZE_LIMIT))
    except OSError:
        return None


def write_code(path: Path, made_from: str, code: Code, superseded: str) -> None:
    """Write the file under its final name at once, then remove the files it supersedes (a pattern of names)."""
    try:
        path.parent.mkdir(exist_ok=True)
        fd, temporary = tempfile.mkstemp(prefix=f"{path.stem}.", suffix=".tmp", dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(pack(made_from, code))
            file.flush()
            os.fchmod(fd, 0o644)  # like the module's own bytecode: other users of the installation run it, too
            os.fsync(fd)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        return
    with contextlib.suppress(OSError):
        # Another process may be writing one of these: its file is lost, and the next process compiles again.
        for old in path.parent.glob(superseded):
            if old != path:
                old.unlink(missing_ok=True)
