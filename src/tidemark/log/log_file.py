"""The log file that is being written: frames go in at the end and are synced; a full or old one is closed.

Belongs here: one open file. The format of a frame is in `frames.py`; `shard_state/seal.py` seals a closed file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemark.log.frames import HEADER_BYTES, PAYLOAD_LIMIT, Header, encode_frame_head, encode_header
from tidemark.log.log_content import log_name
from tidemark.model.shard_errors import FrameTooLargeError, ShardFencedError
from tidemark.storage.disk import Disk
from tidemark.storage.failpoints import failpoint

# Below this a copy costs less than another system call.
WRITTEN_TOGETHER = 256 * 1024


class LogFile:
    """An open log file with its header on the disk."""

    def __init__(self, disk: Disk, directory: Path, header: Header, size: int) -> None:
        self._disk = disk
        self.path = directory / log_name(header.number)
        self.header = header
        self._fd = disk.create(self.path, size)
        self.end = HEADER_BYTES
        self.last_epoch = 0  # of the frames in this file; 0 means no write yet
        # Header, file and directory entry are on the disk before the first frame can be acknowledged.
        disk.pwrite(self._fd, encode_header(header), 0)
        disk.sync(self._fd)
        disk.sync_directory(directory)

    def append(self, epochs: tuple[int, int], payload: Sequence[Any]) -> None:
        """Write one frame and return when it is on the disk. After an error the file must not be written again.

        `epochs` are the first and the last of the writes in it, or 0 and 0. The payload comes in pieces; a large last
        one is written without a copy. One checksum covers all of them.
        """
        if (size := sum(len(piece) for piece in payload)) > PAYLOAD_LIMIT:
            raise FrameTooLargeError(size, PAYLOAD_LIMIT)
        *small, last = payload
        head = b"".join((encode_frame_head(epochs, payload, self.header, self.end), *small))
        if len(last) < WRITTEN_TOGETHER:
            head, last = head + bytes(last), b""
        self._disk.pwrite(self._fd, head, self.end)
        if last:
            self._disk.pwrite(self._fd, memoryview(last), self.end + len(head))
        failpoint("log.appended")
        self._disk.sync(self._fd)
        failpoint("log.synced")
        # No recovery will read a file that lost its name, however safe its bytes are.
        if not self._disk.is_named(self._fd, self.path):
            raise ShardFencedError(self.header.shard, self.header.incarnation)
        self.end += len(head) + len(last)
        self.last_epoch = max(self.last_epoch, epochs[1])

    def close(self) -> None:
        """Close the file, and give back the space that it did not need."""
        self._disk.truncate(self._fd, self.end)
        self._disk.close(self._fd)
