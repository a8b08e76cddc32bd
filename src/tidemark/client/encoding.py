"""From what a program hands over to what a frame carries: JSON lines, or columns as an Arrow stream (W2, C14).

Belongs here: encoding, on the caller's thread: afterwards nothing of the caller's objects is used. Whether a delta is
right is the server's to say. Arrow is imported only where the caller has columns.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from msgspec import Struct

from tidemark.client.errors import EncodingError, TooLargeError

if TYPE_CHECKING:
    import pyarrow as pa

_ONE_DELTA = (Mapping, Struct, str, bytes, bytearray, memoryview)


class Columns(NamedTuple):
    """Some deltas as an Arrow stream."""

    payload: bytes
    rows: int


def is_columns(deltas: object) -> bool:
    """Whether this is something with Arrow inside, or a data frame."""
    return (
        type(deltas).__module__.partition(".")[0] in {"pyarrow", "pandas"}
        or hasattr(deltas, "__arrow_c_stream__")
        or hasattr(deltas, "__arrow_c_array__")
    )


# Rows.


def encode_rows(deltas: Any, limit_bytes: int) -> list[bytes]:
    """Each delta as one line of JSON."""
    if isinstance(deltas, _ONE_DELTA):
        deltas = [deltas]
    elif not isinstance(deltas, Iterable):
        raise EncodingError(
            f"A {type(deltas).__name__} cannot be sent. Send deltas as dictionaries, `Delta` or JSON, or a table of "
            "Arrow, Polars or pandas."
        )
    lines = []
    for place, delta in enumerate(deltas):
        line = _line(delta, place)
        if len(line) > limit_bytes:
            raise TooLargeError(
                f"Delta {place} has {len(line):,} bytes, and a write has at most {limit_bytes:,}. Nothing of this call "
                "was taken."
            )
        lines.append(line)
    return lines


def _line(delta: Any, place: int) -> bytes:
    if isinstance(delta, str):
        delta = delta.encode(errors="surrogatepass")
    if isinstance(delta, bytes | bytearray | memoryview):
        # A line break can only stand between the parts of JSON, where a space says the same.
        return bytes(delta).replace(b"\n", b" ").replace(b"\r", b" ")
    if not isinstance(delta, Mapping | Struct):
        raise EncodingError(
            f"Delta {place} is a {type(delta).__name__}. Send dictionaries, `Delta`, or JSON as text or bytes."
        )
    try:
        line = msgspec.json.encode(delta, enc_hook=_plain)
        # NaN and infinities would become null: the server has a word for them, and must see them.
        return _as_python_writes(delta) if b"null" in line and _has_no_number(delta) else line
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        raise EncodingError(
            f"Delta {place} cannot be written as JSON: {error}. Nothing of this call was taken."
        ) from error


def _plain(value: Any) -> Any:
    """Numbers and arrays of libraries that need not be there, and mappings that are no dictionaries."""
    if isinstance(value, Mapping):
        return dict(value)
    if callable(convert := getattr(value, "tolist", None) or getattr(value, "item", None)):
        return convert()
    raise TypeError(f"a {type(value).__name__} is nothing that JSON knows")


def _has_no_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_no_number, value.values()))
    if isinstance(value, Struct):
        return any(_has_no_number(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list | tuple):
        return any(map(_has_no_number, value))
    if callable(convert := getattr(value, "tolist", None)):
        return _has_no_number(convert())
    return False


def _as_python_writes(delta: Any) -> bytes:
    plain = msgspec.to_builtins(delta, enc_hook=_plain)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


# Columns.


def encode_columns(deltas: Any, most_rows: int, most_bytes: int, limit_bytes: int) -> list[Columns]:
    """The rows of a table as Arrow streams, each with at most so many rows and about so many bytes."""
    table = _as_table(deltas)
    found: list[Columns] = []
    _encode_pieces(table, most_rows, most_bytes, limit_bytes, found)
    return found


def _encode_pieces(table: "pa.Table", most_rows: int, most_bytes: int, limit_bytes: int, found: list[Columns]) -> None:
    for start in range(0, len(table), most_rows):
        piece = table.slice(start, most_rows)
        payload = _stream(piece)
        if len(payload) <= most_bytes or (len(piece) == 1 and len(payload) <= limit_bytes):
            found.append(Columns(payload, len(piece)))
        elif len(piece) > 1:
            _encode_pieces(piece, (len(piece) + 1) // 2, most_bytes, limit_bytes, found)
        else:
            raise TooLargeError(
                f"One row has {len(payload):,} bytes in Arrow, and a write has at most {limit_bytes:,}. Nothing of "
                "this call was taken."
            )


def _stream(table: "pa.Table") -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return cast("bytes", sink.getvalue().to_pybytes())


def _as_table(deltas: Any) -> "pa.Table":
    try:
        import pyarrow as pa
    except ImportError as error:
        raise EncodingError(
            f"To send a {type(deltas).__name__}, PyArrow must be installed (pip install pyarrow). Without it, send "
            "rows: to_dicts() of Polars, to_dict('records') of pandas."
        ) from error
    try:
        if isinstance(deltas, pa.Table):
            return deltas
        if isinstance(deltas, pa.RecordBatch):
            return pa.Table.from_batches([deltas])
        if type(deltas).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(deltas, preserve_index=False)
        return pa.table(deltas)
    except (pa.lib.ArrowException, TypeError, ValueError) as error:
        raise EncodingError(
            f"The {type(deltas).__name__} cannot be read as columns: {error}. Give each column one type, or send its "
            "rows as dictionaries."
        ) from error
