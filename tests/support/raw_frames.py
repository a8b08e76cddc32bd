"""Bytes as a stranger may send them: frames that break rules, zstd without a library, Arrow streams.

Belongs here: making such bytes. What they must be called is in `golden_frames.py` and in the tests.
"""

import json
import struct
from typing import Any

import google_crc32c
import pyarrow as pa

from tidemark.wire.frames import MAGIC, VERSION

CLICK = {
    "namespace": "shop",
    "kind": "signal",
    "delta_id": "c-1",
    "event_ts": "2025-06-02T10:00:00Z",
    "signal": {"entity_id": "page-7", "signal": "click", "count": 1},
}
VIEW = {**CLICK, "delta_id": "v-1", "signal": {"entity_id": "page-7", "signal": "view", "count": 2}}


def compact(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def raw(
    kind: int = 0,
    flags: int = 0,
    sequence: int = 42,
    payload: bytes = b"{}",
    *,
    magic: int = MAGIC,
    version: int = VERSION,
    length: int | None = None,
) -> bytes:
    """A frame that may break every rule but that of the checksum."""
    size = len(payload) if length is None else length
    data = struct.pack(">BBBBQI", magic, version, kind, flags, sequence, size) + payload
    return data + struct.pack(">I", google_crc32c.value(data))


def zstd(content: bytes, stated: int | None = None, rest: bytes = b"") -> bytes:
    """A zstd frame whose content is not compressed: the same bytes with every version of every library."""
    size = len(content) if stated is None else stated
    block = struct.pack("<I", len(content) << 3 | 1)[:3] + content
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", size) + block + rest


def zstd_of_one_byte(count: int) -> bytes:
    """So many zeros in a few bytes, rightly stated. One block may have 128 KB."""
    blocks = b""
    for left in range(count, 0, -131_072):
        size = min(left, 131_072)
        blocks += struct.pack("<I", size << 3 | 1 << 1 | (left <= 131_072))[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", count) + blocks


def arrow(columns: dict[str, pa.Array], metadata: dict[str, bytes] | None = None) -> bytes:
    """An Arrow IPC stream of these columns."""
    batch = pa.RecordBatch.from_pydict(columns).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def clicks() -> dict[str, pa.Array]:
    """Two signals in columns."""
    return {
        "namespace": pa.array(["shop", "shop"]),
        "kind": pa.array(["signal", "signal"]),
        "delta_id": pa.array(["c-1", "v-1"]),
        "event_ts": pa.array([1_748_858_400_000_000] * 2).cast(pa.timestamp("us", "UTC")),
        "signal": pa.array([CLICK["signal"], VIEW["signal"]]),
    }
