"""Golden bytes that are refused (W9), each with the word for it.

Belongs here: one of every way to be refused. Good frames, and the file that both are in, are in `golden_frames.py`.
"""

import struct
from typing import NamedTuple

import google_crc32c

from tests.support.raw_frames import CLICK, compact, raw, zstd, zstd_of_one_byte
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import MAGIC, VERSION, Flag, Frame, FrameType, encode_frame


class Bad(NamedTuple):
    """Bytes that are refused, and the word for it."""

    name: str
    meaning: str
    data: bytes
    reason: NackReason
    message: str = ""  # what the payload was taken for
    ends: bool = False  # the bytes after it cannot be read


def _bad_frames() -> list[Bad]:
    click = encode_frame(Frame(FrameType.DELTA, Flag.WANTS_ACK, 42, compact(CLICK)))
    flipped = bytes((*click[:11], click[11] ^ 1, *click[12:]))
    damaged = bytes((*click[:-1], click[-1] ^ 1))
    of_payload_alone = struct.pack(">BBBBQI", MAGIC, VERSION, 0, 0, 42, 2) + b"{}"
    of_payload_alone += struct.pack(">I", google_crc32c.value(b"{}"))
    return [
        Bad("http", "HTTP at the wrong port.", b"GET / HTTP/1.1\r\n\r\n", NackReason.BAD_MAGIC, ends=True),
        Bad("version", "A version that is not known.", raw(version=2), NackReason.BAD_VERSION, ends=True),
        Bad("type", "There is no type 8.", raw(8), NackReason.BAD_TYPE, ends=True),
        Bad("flags", "One of the upper four bits is set.", raw(flags=0x11), NackReason.BAD_FLAGS, ends=True),
        Bad("columns_not_batched", "Type 1 needs the flag batched.", raw(1), NackReason.BAD_FLAGS, ends=True),
        Bad("checksum", "The last bit is another.", damaged, NackReason.BAD_CHECKSUM, ends=True),
        Bad("sequence_flipped", "The header is covered, too.", flipped, NackReason.BAD_CHECKSUM, ends=True),
        Bad(
            "checksum_of_payload_alone",
            "The checksum of the payload without its header.",
            of_payload_alone,
            NackReason.BAD_CHECKSUM,
            ends=True,
        ),
        Bad(
            "length",
            "It states a payload of 4 GiB: refused by the header alone.",
            raw(length=2**32 - 1, payload=b"")[:16],
            NackReason.PAYLOAD_TOO_LARGE,
            ends=True,
        ),
    ]


def _bad_content() -> list[Bad]:
    compressed = int(Flag.BATCHED | Flag.COMPRESSED)
    lines = compact(CLICK)
    unstated = b"\x28\xb5\x2f\xfd\x00\x58" + struct.pack("<I", len(lines) << 3 | 1)[:3] + lines
    bomb = NackReason.BAD_COMPRESSION
    return [
        Bad("not_zstd", "The flag compressed, and no zstd frame.", raw(flags=compressed, payload=lines), bomb),
        Bad("size_not_stated", "A zstd frame that states no size.", raw(flags=compressed, payload=unstated), bomb),
        Bad("size_too_large", "It states 1 GiB.", raw(flags=compressed, payload=zstd(lines, 2**30)), bomb),
        Bad("ratio", "A megabyte of zeros in 46 bytes.", raw(flags=compressed, payload=zstd_of_one_byte(2**20)), bomb),
        Bad("size_wrong", "It states 5 bytes more.", raw(flags=compressed, payload=zstd(lines, len(lines) + 5)), bomb),
        Bad("two_frames", "Two zstd frames.", raw(flags=compressed, payload=zstd(lines) + zstd(lines)), bomb),
        Bad("no_deltas", "Only empty lines.", raw(flags=8, payload=b"\n \n"), NackReason.BAD_PAYLOAD),
        Bad("no_arrow", "Type 1, and JSON.", raw(1, 8, payload=lines), NackReason.BAD_PAYLOAD),
        Bad(
            "hello_not_json",
            "A hello that is no JSON.",
            raw(5, sequence=0, payload=b"{"),
            NackReason.BAD_PAYLOAD,
            "Hello",
        ),
        Bad(
            "hello_role",
            "A role that is not known.",
            raw(5, sequence=0, payload=b'{"role":"king"}'),
            NackReason.BAD_PAYLOAD,
            "Hello",
        ),
        Bad(
            "subscribe_wrong_type",
            "A cursor is an object of numbers.",
            raw(6, sequence=1, payload=b'{"cursor":[17]}'),
            NackReason.BAD_PAYLOAD,
            "Subscribe",
        ),
    ]


def bad() -> list[Bad]:
    """One of every way to be refused."""
    return [*_bad_frames(), *_bad_content()]
