"""Payloads: compression within bounds, and JSON lines (W2, W3).

Belongs here: what is between a frame's payload and what a door or a client works with, as far as it needs no Arrow.
Columns are read in `door/foreign_columns.py`.
"""

from collections.abc import Iterable

import zstandard

from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.limits import Limits

# Level 1 halves what columns take at a few hundred megabytes a second.
_LEVEL = 1


def compress(payload: bytes) -> bytes:
    """One zstd frame that states its content's size."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(payload)


def decompress(payload: bytes | memoryview, limits: Limits) -> bytes:
    """The content of a compressed payload. Its stated size is checked before any of it is unpacked."""
    try:
        size = zstandard.frame_content_size(payload)
    except zstandard.ZstdError as error:
        raise PayloadError(NackReason.BAD_COMPRESSION, f"The payload is not one zstd frame: {error}.") from error
    if size < 0:
        raise PayloadError(
            NackReason.BAD_COMPRESSION, "The zstd frame does not state the size of its content; let it do so."
        )
    if size == 0:
        # For an empty frame the library looks at nothing more, not even at what follows it.
        raise PayloadError(NackReason.BAD_COMPRESSION, "The zstd frame holds nothing.")
    if size > limits.unpacked_bytes:
        raise PayloadError(
            NackReason.BAD_COMPRESSION,
            f"The payload unpacks to {size:,} bytes; {limits.unpacked_bytes:,} may be. Send smaller writes.",
        )
    if size > limits.ratio * len(payload):
        raise PayloadError(
            NackReason.BAD_COMPRESSION,
            f"The payload unpacks to more than {limits.ratio} times its size. Send it uncompressed.",
        )
    try:
        # `max_output_size` counts only where a frame states no size; what is stated is what is allocated.
        content = zstandard.ZstdDecompressor().decompress(payload, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise PayloadError(NackReason.BAD_COMPRESSION, f"The zstd frame cannot be unpacked: {error}.") from error
    if len(content) != size:
        raise PayloadError(NackReason.BAD_COMPRESSION, "The zstd frame holds another size than it states.")
    return content


def json_lines(payload: bytes | memoryview, limits: Limits) -> list[bytes]:
    """The deltas of a payload of JSON lines; empty lines are none."""
    content = bytes(payload)
    if content.count(b"\n") > limits.rows:
        raise PayloadError(NackReason.TOO_LARGE, f"A write has at most {limits.rows:,} lines. Send several.")
    return [line for line in content.split(b"\n") if line and not line.isspace()]


def as_json_lines(deltas: Iterable[bytes]) -> bytes:
    """The payload of these deltas, each one JSON object without a line break."""
    return b"\n".join(deltas)
