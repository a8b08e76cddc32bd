"""Arrow streams as strangers write them, good ones and bombs, and a reader that a crash would show.

Belongs here: making them. What must become of them is in the tests.
"""

import io
import struct
from typing import Any

import pyarrow as pa

from tests.support.raw_frames import arrow, clicks


def written(data: pa.Table | pa.RecordBatch, **options: Any) -> bytes:
    """A stream of this data, with these options of the writer."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, data.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write(data)
    return sink.getvalue()


def signals(rows: int) -> pa.RecordBatch:
    """Signals in the log's own types."""
    numbers = pa.array(range(rows), pa.int64())
    texts = {"namespace": "shop", "kind": "signal"}
    payload = {"entity_id": pa.array([f"page-{row % 50}" for row in range(rows)]), "signal": pa.array(["view"] * rows)}
    payload |= {"count": pa.array([1] * rows, pa.int64()), "weight_millionths": numbers}
    columns = {name: pa.array([text] * rows) for name, text in texts.items()}
    columns["delta_id"] = pa.array([f"id-{row}" for row in range(rows)])
    columns["event_ts"] = pa.array([1_748_858_400_000_000 + row for row in range(rows)]).cast(pa.timestamp("us", "UTC"))
    columns["signal"] = pa.StructArray.from_arrays(list(payload.values()), names=list(payload))
    return pa.RecordBatch.from_pydict(columns)


def every_type() -> pa.RecordBatch:
    """A few rows, with gaps, of every kind of column that is taken."""
    texts = ["x", "a text of more than twelve bytes", None, "x"]
    words = [["a"], ["b", "c"], [], None]
    coded = pa.dictionary(pa.int8(), pa.string())
    return pa.RecordBatch.from_pydict(
        {
            "text": pa.array(texts),
            "large": pa.array(texts, pa.large_string()),
            "view": pa.array(texts, pa.string_view()),
            "bytes_view": pa.array([None, b"a", b"bytes of more than twelve", b""], pa.binary_view()),
            "coded": pa.array(texts).dictionary_encode(),
            "coded_numbers": pa.array([7, None, 7, 8]).dictionary_encode(),
            "coded_words": pa.array(words, pa.list_(coded)),
            "viewed_words": pa.array(words, pa.large_list(pa.string_view())),
            "struct": pa.array([{"k": "v", "n": 1}, None, {"k": None, "n": 2}, {"k": "v", "n": None}],
                               pa.struct([("k", coded), ("n", pa.int16())])),
            "map": pa.array([[("a", "b")], [], None, [("c", None)]], pa.map_(pa.string(), pa.string_view())),
            "pair": pa.array([[1, 2], None, [3, 4], [5, None]], pa.list_(pa.int32(), 2)),
            "truth": pa.array([True, None, False, True]),
            "nothing": pa.nulls(4),
            "float": pa.array([1.5, None, float("nan"), 0.0], pa.float32()),
            "fixed": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
            "time": pa.array([1, 2, None, 4], pa.timestamp("ns", "UTC")),
        }
    )  # fmt: skip


def streams() -> dict[str, bytes]:
    """Small valid streams of every shape."""
    two = pa.Table.from_batches([signals(2), signals(1)])
    return {
        "signals": written(signals(3)),
        "lz4": written(signals(3), compression="lz4"),
        "zstd": written(signals(3), compression="zstd"),
        "batches": written(two),
        "every_type": written(every_type()),
        "every_type_zstd": written(every_type(), compression="zstd"),
        "with_metadata": arrow(clicks(), {"note": b"of a stranger"}),
        "empty": written(signals(0)),
    }


def with_number(stream: bytes, old: int, new: int, *, form: str = "<q", only: int = 0) -> bytes:
    """The stream with a number of its metadata or body replaced, at its n-th place."""
    before, after = struct.pack(form, old), struct.pack(form, new)
    place = -1
    for _ in range(only + 1):
        place = stream.index(before, place + 1)
    return stream[:place] + after + stream[place + len(before) :]
