"""From a write's frame to deltas, within the limits (W2, W3, W10).

Belongs here: unpacking, and which namespaces a write names. What is wrong with a single delta is decided by the shard;
here only what makes nothing of the whole frame.
"""

from collections.abc import Sequence
from typing import TypeAlias, cast

import msgspec
import pyarrow as pa
from msgspec import Struct

from tidemark.door.decoded import Sent
from tidemark.door.foreign_columns import read_columns
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.frames import Flag, Frame, FrameType
from tidemark.wire.limits import Limits
from tidemark.wire.payloads import decompress, json_lines

Content: TypeAlias = Sequence[Sent] | pa.Table | pa.RecordBatch


class _Named(Struct):
    """What is read of a delta to find out whether its sender may write there."""

    namespace: str = ""


_named = msgspec.json.Decoder(_Named)


def read_write(frame: Frame, limits: Limits) -> Content:
    """The deltas of a frame of type 0 or 1; raises `PayloadError`. Columns may lie in the frame's own memory."""
    payload = decompress(frame.payload, limits) if frame.flags & Flag.COMPRESSED else frame.payload
    if frame.type is FrameType.BATCH:
        content: Content = read_columns(payload, limits)
    elif frame.flags & Flag.BATCHED:
        content = json_lines(payload, limits)
    else:
        content = [bytes(payload)]
    if not content:
        raise PayloadError(NackReason.BAD_PAYLOAD, "A write needs at least one delta.")
    return content


def namespaces_of(content: Content) -> set[str]:
    """The namespaces that a write names. Deltas without a readable one go to none, and are refused by the shard."""
    if isinstance(content, pa.Table | pa.RecordBatch):
        if "namespace" not in content.schema.names:
            return set()
        return {str(name) for name in content["namespace"].unique().to_pylist() if name is not None}
    found = set()
    for delta in content:
        try:
            found.add(_named.decode(cast("bytes", delta)).namespace)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            continue
    return found - {""}
