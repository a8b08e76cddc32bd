"""Small files that are read and replaced as a whole, as JSON.

Belongs here: reading and writing one, durably. Does not belong here: what is in them, and what to do about a damaged
one: that differs from file to file. A file that must survive a disk that changes bytes has a checksum
(`shard_state/state.py`).
"""

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from tidemark.model.errors import DamageError
from tidemark.storage.disk import RealDisk

T = TypeVar("T", bound=Struct)


def read_json(path: Path, kind: type[T], *, way_out: str) -> T | None:
    """What a file says; None if there is none. `way_out` tells the operator what to do about a damaged one."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(RealDisk().read(path), type=kind)
    except msgspec.MsgspecError as error:
        raise DamageError(f"{path} is damaged ({error}). {way_out}") from error


def write_json(path: Path, content: Struct) -> None:
    """Replace a file, durably; its folder is made if it is missing."""
    disk = RealDisk()
    disk.make_directory(path.parent)
    disk.replace(path, msgspec.json.encode(content))
