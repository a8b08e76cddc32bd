"""The files of segments: where each is, and whether it is the one that was sealed.

Belongs here: facts about a segment that need none of its rows. How one is encoded is in `segments.py`.
"""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.log.manifest_files import RESTORE
from tidemark.model.shard_errors import SegmentDamageError
from tidemark.storage.disk import Disk, RealDisk

if TYPE_CHECKING:
    from tidemark.log.manifest import Entry

# This many segments share a folder. In one directory for all of them, each listing would take longer every day.
SEGMENTS_IN_FOLDER = 1_000


def folder_of(number: int) -> str:
    """The folder of a segment. It follows from the number, so that a repeated seal finds its own file."""
    return f"{(number - 1) // SEGMENTS_IN_FOLDER:06d}"


def verify_segment(directory: Path, entry: "Entry", disk: Disk | None = None) -> Path:
    """The segment's path, after its bytes are verified to be the ones that were sealed."""
    path = directory / entry.file
    try:
        file = (disk or RealDisk()).open(path)
    except FileNotFoundError:
        raise SegmentDamageError(
            f"Segment {path} is missing; the manifest lists it with {entry.rows} deltas. {RESTORE}"
        ) from None
    with file:
        size = file.seek(0, os.SEEK_END)
        if size != entry.bytes:
            raise SegmentDamageError(
                f"Segment {path} has {size} bytes instead of {entry.bytes}: it was truncated or changed. {RESTORE}"
            )
        file.seek(0)
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != entry.sha256:
        raise SegmentDamageError(f"Segment {path} has another checksum than when it was sealed. {RESTORE}")
    return path
