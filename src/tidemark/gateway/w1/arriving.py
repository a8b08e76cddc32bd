"""What a write looks like to the gate: how much of which stream it has, and from when (A1, A2).

Belongs here: looking at deltas before anything is decided on them. Only platforms that have agreed something with a
stream pay for it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tidemark.admission.arriving import Part, Stream
from tidemark.gateway.w1.write_frames import Content
from tidemark.model.deltas import Source
from tidemark.model.timegrid import to_us

# Where nothing is agreed, streams are not told apart.
ANY_STREAM: Stream = ("*", "*")
# Of deltas that are turned away so many ids are noted.
NOTED_IDS = 20


class _Seen(Struct):
    """What is read of a delta."""

    namespace: str = ""
    kind: str = ""
    delta_id: str = ""
    source: str = Source.LOCAL
    event_ts: int | datetime | None = None


_seen = msgspec.json.Decoder(_Seen)
_UNREADABLE = _Seen()


def whole(content: Content, size: int) -> Mapping[Stream, Part]:
    """The write as one part."""
    return {ANY_STREAM: Part(len(content), size)}


def by_stream(content: Content, size: int) -> Mapping[Stream, Part]:
    """The write by stream; deltas that cannot be read are of no stream, and are refused by the shard."""
    if isinstance(content, pa.Table | pa.RecordBatch):
        return _of_columns(content, size)
    found: dict[Stream, list[int | None]] = {}
    for delta in content:
        seen = _read(delta)
        found.setdefault((seen.namespace, seen.kind), []).append(_us(seen.event_ts))
    return {stream: _part(times, size * len(times) // len(content)) for stream, times in found.items()}


def ids_of(content: Content) -> list[str]:
    """The ids of its last deltas."""
    if isinstance(content, pa.Table | pa.RecordBatch):
        if "delta_id" not in content.schema.names:
            return []
        return [str(each) for each in content["delta_id"].slice(max(0, len(content) - NOTED_IDS)).to_pylist()]
    return [found for found in (_read(delta).delta_id for delta in content[-NOTED_IDS:]) if found]


def source_of(content: Content) -> Source:
    """Where a write comes from, if all its deltas say the same: imports and replicas are of another time (A2)."""
    if isinstance(content, pa.Table | pa.RecordBatch):
        if "source" not in content.schema.names:
            return Source.LOCAL
        found = {each or Source.LOCAL for each in _texts(content, "source").unique().to_pylist()}
    else:
        found = {_read(delta).source for delta in content}
    [only, *others] = found
    return Source(only) if not others and only in set(Source) else Source.LOCAL


def _read(delta: object) -> _Seen:
    try:
        return _seen.decode(delta)  # type: ignore[arg-type]  # lines of a frame are bytes
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _UNREADABLE


def _us(time: int | datetime | None) -> int | None:
    if not isinstance(time, datetime):
        return time
    return to_us(time if time.tzinfo else time.replace(tzinfo=UTC))


def _part(times: list[int | None], size: int) -> Part:
    known = [time for time in times if time is not None]
    return Part(len(times), size, min(known, default=None), max(known, default=None))


def _of_columns(content: pa.Table | pa.RecordBatch, size: int) -> Mapping[Stream, Part]:
    table = pa.table({name: _texts(content, name) for name in ("namespace", "kind")} | {"at": _times(content)})
    groups = table.group_by(["namespace", "kind"], use_threads=False).aggregate(
        [([], "count_all"), ("at", "min"), ("at", "max")]
    )
    return {
        (row["namespace"] or "", row["kind"] or ""): Part(
            row["count_all"], size * row["count_all"] // len(content), row["at_min"], row["at_max"]
        )
        for row in groups.to_pylist()
    }


def _texts(content: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    if name not in content.schema.names:
        return pa.nulls(len(content), pa.string())
    try:
        return content[name].cast(pa.string())
    except pa.ArrowException:
        return pa.nulls(len(content), pa.string())


def _times(content: pa.Table | pa.RecordBatch) -> pa.Array:
    """Event times in microseconds; null where the shard has to look."""
    if "event_ts" not in content.schema.names:
        return pa.nulls(len(content), pa.int64())
    times = content["event_ts"]
    try:
        if pa.types.is_timestamp(times.type):
            return pc.cast(pc.cast(times, pa.timestamp("us", times.type.tz), safe=False), pa.int64())
        return times.cast(pa.int64()) if pa.types.is_integer(times.type) else pa.nulls(len(content), pa.int64())
    except pa.ArrowException:
        return pa.nulls(len(content), pa.int64())
