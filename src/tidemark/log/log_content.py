"""The content of a log file, for recovery, sealing, verification and `status`.

Belongs here: a whole file as frames. The format of a frame is in `frames.py`; the file that is being written, in
`log_file.py`. Arrow is imported for the rows alone: finding out how far a log has come is quicker than that import.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidemark.log.frames import HEADER_BYTES, Frame, Header, decode_header, find_tail, read_frames
from tidemark.storage.disk import Disk

if TYPE_CHECKING:
    from tidemark.log.groups import Group


class LogContent(NamedTuple):
    """The content of one log file."""

    header: Header
    frames: list[Frame]
    is_torn: bool
    data: memoryview  # the whole file

    @property
    def end(self) -> int:
        """Where the last valid frame ends."""
        return self.frames[-1].end if self.frames else HEADER_BYTES

    @property
    def last_epoch(self) -> int:
        """Last epoch of the writes in it; 0 if there is none."""
        return max((frame.last_epoch for frame in self.frames), default=0)

    @property
    def next_epoch(self) -> int:
        """First epoch that may be in the next file."""
        return max(self.header.first_epoch, self.last_epoch + 1)

    def groups(self) -> "Iterator[Group]":
        """The groups that were flushed, in order."""
        from tidemark.log.groups import decode_group

        for frame in self.frames:
            yield decode_group(frame.payload)


def read_log(disk: Disk, path: Path, *, is_at_rest: bool = False) -> LogContent | None:
    """All valid frames of a log file; None if it was created and never begun. Damage before the end is refused.

    A file at rest, which only the caller may write, is not copied.
    """
    data = disk.map(path) if is_at_rest else memoryview(disk.read(path))
    header = decode_header(data, str(path))
    if header is None:
        return None
    content = LogContent(header, list(read_frames(data, header)), is_torn=False, data=data)
    return content._replace(is_torn=find_tail(data, header, content.end, str(path)).is_torn)


def log_name(number: int) -> str:
    """Name of a log file."""
    return f"{number:010d}.log"
