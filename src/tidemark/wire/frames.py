"""Frames: sixteen bytes of header, a payload, and a checksum over both (W1).

Belongs here: how a frame is written, and how frames are found in a stream of bytes that arrives in any pieces.

    0      1        2     3      4 … 11     12 … 15   16 …      the last four
    magic  version  type  flags  sequence   length    payload   CRC32C of all before it

All numbers are big-endian and without a sign.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import NamedTuple

import google_crc32c

from tidemark.wire.errors import FrameError, NackReason
from tidemark.wire.limits import LIMITS

MAGIC = 0xD3
VERSION = 1
HEADER = struct.Struct(">BBBBQI")
HEADER_BYTES = HEADER.size
CHECKSUM = struct.Struct(">I")
CHECKSUM_BYTES = CHECKSUM.size
LARGEST_SEQUENCE = 2**64 - 1
# What a connection has from the start, so that thousands of idle ones cost little.
_FIRST_BYTES = 32 * 1024
# What one that sends much keeps: larger buffers are given back after the frame that needed them.
_KEPT_BYTES = 1024 * 1024
# A buffer that is half full grows to so many times of what has arrived.
_GROWTH = 4
_PIECE_BYTES = 64 * 1024


class FrameType(IntEnum):
    """What a frame is."""

    DELTA = 0  # one delta as JSON; with BATCHED one on each line
    BATCH = 1  # an Arrow IPC stream; always BATCHED
    ACK = 2
    NACK = 3
    BACKPRESSURE = 4
    HEARTBEAT = 5  # the hello and its answer, signs of life, and the goodbye
    SUBSCRIBE = 6
    UNSUBSCRIBE = 7


class Flag(IntFlag):
    """What else is said of a frame; the other four bits must be zero."""

    NONE = 0
    WANTS_ACK = 1
    PRIORITY = 2  # a write before others of the same connection's class
    COMPRESSED = 4  # the payload is one zstd frame that states its content's size
    BATCHED = 8


_KNOWN_FLAGS = int(Flag.WANTS_ACK | Flag.PRIORITY | Flag.COMPRESSED | Flag.BATCHED)
_LARGEST_TYPE = max(FrameType)


class Frame(NamedTuple):
    """One frame. `payload` may be a view of a buffer that is used again: it counts until the next bytes are read."""

    type: FrameType
    flags: Flag
    sequence: int
    payload: bytes | memoryview = b""


def encode_frame(frame: Frame) -> bytes:
    """The bytes of a frame."""
    header = HEADER.pack(MAGIC, VERSION, frame.type, frame.flags, frame.sequence, len(frame.payload))
    start = header + frame.payload
    return start + CHECKSUM.pack(google_crc32c.value(start))


def _checksum(data: memoryview) -> int:
    """CRC32C of bytes that lie in a buffer. The library takes only `bytes`: a small copy at a time costs least."""
    checksum = 0
    for start in range(0, len(data), _PIECE_BYTES):
        checksum = google_crc32c.extend(checksum, bytes(data[start : start + _PIECE_BYTES]))
    return checksum


class FrameReader:
    """Finds frames in a stream. Give it bytes by `feed`, or let a socket write into `buffer` and say how much it wrote.

    A frame larger than the buffer gets a larger one as it arrives: what a header states is no reason to take memory.
    """

    def __init__(self, limit_bytes: int = LIMITS.payload_bytes) -> None:
        self.limit_bytes = limit_bytes
        self._data = bytearray(_FIRST_BYTES)
        self._start = self._end = 0  # of what has arrived and is not read yet

    @property
    def is_between_frames(self) -> bool:
        """Whether no frame has begun that has not ended."""
        return self._start == self._end

    def buffer(self) -> memoryview:
        """Where the next bytes go. What earlier frames showed of it is overwritten."""
        self._make_room()
        return memoryview(self._data)[self._end :]

    def wrote(self, size: int) -> Iterator[Frame]:
        """The frames that are complete now that so many bytes were written into `buffer`. Read them all."""
        self.advance(size)
        while (frame := self.next()) is not None:
            yield frame

    def advance(self, size: int) -> None:
        """So many bytes were written into `buffer`: for those who take one frame after another by `next`."""
        self._end += size

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that these bytes complete."""
        rest = memoryview(data)
        while rest:
            room = self.buffer()
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            rest = rest[size:]
            yield from self.wrote(size)

    def _make_room(self) -> None:
        """Move what is left to the front, into a buffer in which the frame that has begun fits whole."""
        waiting, size = self._end - self._start, len(self._data)
        wanted = self._frame_bytes() if waiting >= HEADER_BYTES else HEADER_BYTES
        if size < wanted and size < 2 * waiting:
            # The next frames are likely of the same size.
            size = min(_GROWTH * waiting, max(wanted, min(2 * wanted, _KEPT_BYTES)))
        elif size > _KEPT_BYTES and wanted <= _FIRST_BYTES:
            size = _FIRST_BYTES
        if size != len(self._data) or self._start:
            data = self._data if size == len(self._data) else bytearray(max(size, waiting))
            data[:waiting] = self._data[self._start : self._end]
            self._data, self._start, self._end = data, 0, waiting

    def _frame_bytes(self) -> int:
        """The size of the frame that begins here; raises if it may not be read."""
        magic, version, kind, flags, _, length = HEADER.unpack_from(self._data, self._start)
        if magic != MAGIC:
            raise FrameError(
                NackReason.BAD_MAGIC,
                f"A frame begins with byte 0x{MAGIC:02X}, and this with 0x{magic:02X}. Is HTTP spoken at another port?",
            )
        if version != VERSION:
            raise FrameError(NackReason.BAD_VERSION, f"Version {version} is not known here; speak version {VERSION}.")
        if kind > _LARGEST_TYPE:
            raise FrameError(NackReason.BAD_TYPE, f"There is no frame of type {kind}; types go from 0 to 7.")
        if flags & ~_KNOWN_FLAGS:
            raise FrameError(NackReason.BAD_FLAGS, f"Flags are 0x{flags:02X}; the upper four bits must be zero.")
        if kind == FrameType.BATCH and not flags & Flag.BATCHED:
            raise FrameError(NackReason.BAD_FLAGS, "A frame of type 1 holds many deltas; set its flag `batched`.")
        if length > self.limit_bytes:
            raise FrameError(
                NackReason.PAYLOAD_TOO_LARGE,
                f"The payload has {length:,} bytes; {self.limit_bytes:,} may be in one frame. Send smaller writes.",
            )
        return int(HEADER_BYTES + length + CHECKSUM_BYTES)

    def next(self) -> Frame | None:
        """The next frame, if it is complete."""
        start = self._start
        if self._end - start < HEADER_BYTES:
            return None
        end = start + self._frame_bytes()
        if end > self._end:
            return None
        whole = memoryview(self._data)[start:end]
        if CHECKSUM.unpack(whole[-CHECKSUM_BYTES:])[0] != _checksum(whole[:-CHECKSUM_BYTES]):
            raise FrameError(NackReason.BAD_CHECKSUM, "The checksum of a frame is wrong: it was damaged on the way.")
        _, _, kind, flags, sequence, _ = HEADER.unpack_from(whole)
        self._start = end
        return Frame(FrameType(kind), Flag(flags), sequence, whole[HEADER_BYTES:-CHECKSUM_BYTES])
