"""Columns from strangers (W2, W3): what is read, and what is refused before memory is taken for it, in which words."""

import io
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.foreign import every_type, signals, streams, with_number, written
from tidemark.door.column_door import to_batch
from tidemark.door.foreign_columns import _without_hidden_views, read_columns
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.limits import LIMITS, Limits

ROOT = Path(__file__).resolve().parents[2]
SMALL = Limits(rows=1_000, unpacked_bytes=100_000, nesting=4, message_bytes=16_384)


def refused(payload: bytes, limits: Limits = SMALL) -> tuple[NackReason, str]:
    """The word and the sentence for a stream, which may take no memory of Arrow's or ours."""
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError) as error:
            read_columns(payload, limits)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000 + 4 * len(payload)
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert error.value.reason in {NackReason.BAD_PAYLOAD, NackReason.TOO_LARGE}
    return error.value.reason, str(error.value)


def is_bad(payload: bytes, words: str, limits: Limits = SMALL) -> None:
    reason, said = refused(payload, limits)
    assert (reason, words in said) == (NackReason.BAD_PAYLOAD, True), said


def is_too_large(payload: bytes, words: str, limits: Limits = SMALL) -> None:
    reason, said = refused(payload, limits)
    assert (reason, words in said) == (NackReason.TOO_LARGE, True), said


# What is read.


@pytest.mark.parametrize("name", streams())
def test_w2_a_stream_is_read_as_arrow_reads_it(name: str) -> None:
    stream = streams()[name]
    expected = pa.ipc.open_stream(stream).read_all()
    found = read_columns(stream, LIMITS)
    found.validate(full=True)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN is not itself
    assert found.schema.names == expected.schema.names
    assert read_columns(memoryview(stream), LIMITS).equals(found, check_metadata=True) or name.startswith("every_type")


def test_w2_values_that_rows_share_are_written_out() -> None:
    found = read_columns(written(every_type()), LIMITS).schema
    text = " ".join(str(field.type) for field in found)
    assert "dictionary" not in text
    assert "view" not in text


def test_w2_a_frame_s_memory_may_be_used_again() -> None:
    buffer = bytearray(written(signals(3)))
    found = read_columns(memoryview(buffer), LIMITS)
    buffer[:] = bytes(len(buffer))
    found.validate(full=True)
    assert found["namespace"].to_pylist() == ["shop"] * 3


def test_w2_several_batches_with_dictionaries_of_their_own_are_one() -> None:
    parts = [pa.table({"a": pa.array(texts).dictionary_encode()}) for texts in (["x", "y"], ["z"], ["y", None])]
    found = read_columns(written(pa.concat_tables(parts)), LIMITS)
    assert found["a"].to_pylist() == ["x", "y", "z", "y", None]


def test_w2_a_stream_without_an_end_mark_is_whole() -> None:
    assert read_columns(written(signals(3))[:-8], LIMITS).equals(signals(3))


def frame() -> dict[str, Any]:
    signal = [{"entity_id": "page-1", "signal": "view", "count": count} for count in (1, 2)]
    return {"namespace": ["shop"] * 2, "kind": ["signal"] * 2, "delta_id": ["a", "b"], "signal": signal}


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_w2_what_polars_writes_is_read(compression: Any) -> None:
    data = pl.DataFrame(frame()).with_columns(
        event_ts=pl.datetime_range(pl.datetime(2025, 6, 2), pl.datetime(2025, 6, 3), "1d", time_zone="UTC"),
        namespace=pl.col("namespace").cast(pl.Categorical),
        kind=pl.col("kind").cast(pl.Enum(["signal", "vector"])),
    )
    sink = io.BytesIO()
    data.write_ipc_stream(sink, compression=compression or "uncompressed")
    taken = to_batch(read_columns(sink.getvalue(), LIMITS))
    assert taken["namespace"].to_pylist() == ["shop", "shop"]
    assert [row["count"] for row in taken["signal"].to_pylist()] == [1, 2]
    assert "reason" not in taken.schema.names


def test_w2_what_pandas_writes_is_read() -> None:
    data = pd.DataFrame({**frame(), "event_ts": pd.to_datetime(["2025-06-02", "2025-06-03"], utc=True)})
    data["namespace"] = data["namespace"].astype("category")
    taken = to_batch(read_columns(written(pa.RecordBatch.from_pandas(data)), LIMITS))
    assert taken["namespace"].to_pylist() == ["shop", "shop"]
    assert "reason" not in taken.schema.names


# What is refused.


def test_w3_what_is_no_stream_is_named() -> None:
    is_bad(b"", "begins with its schema")
    is_bad(b'{"namespace": "shop"}', "not an Arrow IPC stream")
    is_bad(written(signals(1)) + b"\n", "follow the end")
    is_bad(written(signals(1)) * 2, "follow the end")
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, signals(1).schema) as file:
        file.write(signals(1))
    is_bad(sink.getvalue(), "file format")
    schema = signals(1).schema.serialize().to_pybytes()
    is_bad(schema * 2, "one schema and then batches")
    is_bad(written(signals(1))[len(schema) :], "begins with its schema")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.RunEndEncodedArray.from_arrays([900], ["x"]), "runs"),
        (pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]), "unions"),
        (pa.array([[1]], pa.list_view(pa.int8())), "views of lists"),
        (pa.array([[1]], pa.large_list_view(pa.int8())), "views of lists"),
        (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))), "extension"),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])), "extension"),
        (pa.DictionaryArray.from_arrays([0], pa.array([["x"]])), "nested values"),
    ],
    ids=str,
)
def test_w3_types_that_are_not_taken_are_named(column: pa.Array, words: str) -> None:
    is_bad(written(pa.record_batch({"a": column})), words)
    nested = pa.StructArray.from_arrays([column], names=["inner"])
    is_bad(written(pa.record_batch({"a": nested})), words)


def test_w3_dictionaries_that_are_added_to_and_old_versions_are_refused() -> None:
    parts = [pa.table({"a": pa.array(texts).dictionary_encode()}) for texts in (["x"], ["x", "y"])]
    table = pa.concat_tables(parts)
    is_bad(written(table, emit_dictionary_deltas=True), "adds to a dictionary")
    schema = pa.schema([("a", pa.int64())])
    old = bytearray(written(pa.record_batch({"a": pa.array([1])}), metadata_version=pa.ipc.MetadataVersion.V4))
    assert read_columns(bytes(old), SMALL).schema == schema


def test_w3_rows_are_bounded_over_all_batches() -> None:
    assert len(read_columns(written(signals(SMALL.rows)), SMALL)) == SMALL.rows
    is_too_large(written(signals(SMALL.rows + 1)), "1,001")
    is_too_large(written(pa.Table.from_batches([signals(600), signals(600)])), "1,200")
    # A column of nothing has no bytes: its length is only said, by the batch and by the column.
    stream = written(pa.record_batch({"a": pa.nulls(777)}))
    assert len(read_columns(stream, SMALL)) == 777
    for _ in range(3):
        stream = with_number(stream, 777, 2**50)
    is_too_large(stream, "1,125,899,906,842,624")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_w3_a_compressed_buffer_states_its_size_and_arrow_would_believe_it(compression: str) -> None:
    texts = pa.record_batch({"a": pa.array(["xyz" * 1_440])})
    stream = written(texts, compression=compression)
    assert len(read_columns(stream, SMALL)) == 1
    # The first such number is an offset.
    is_too_large(with_number(stream, 4_320, 2**40, only=1), "The columns unpack to 1,099,511,627,7")
    is_bad(with_number(stream, 4_320, -2, only=1), "negative size")
    is_bad(with_number(stream, 4_320, 4_321, only=1), "cannot be read")
    is_bad(with_number(stream, 4_320, 4_000, only=1), "cannot be read")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_w3_columns_that_unpack_to_more_than_the_ratio_are_refused(compression: str) -> None:
    zeros = pa.record_batch({"a": pa.array([bytes(90_000)])})
    assert len(read_columns(written(zeros, compression=compression), Limits(ratio=1_000))) == 1
    is_too_large(written(zeros, compression=compression), "times their size", Limits(ratio=20))
    is_too_large(written(pa.record_batch({"a": pa.array([bytes(110_000)])}), compression=compression), "100,000 may be")


def test_w3_a_long_text_of_a_dictionary_counts_once_for_each_row() -> None:
    for coded in (pa.dictionary(pa.int16(), pa.string()), pa.dictionary(pa.int8(), pa.large_binary())):
        column = pa.array(["y" * 999] * 100, coded)
        assert len(read_columns(written(pa.record_batch({"a": column})), SMALL)) == 100
        is_too_large(written(pa.record_batch({"a": pa.array(["y" * 1_001] * 100, coded)})), "its own value")
        nested = pa.array([["y" * 1_001] * 10] * 10, pa.list_(coded))
        is_too_large(written(pa.record_batch({"a": nested})), "its own value")


def test_w3_many_views_of_one_text_count_as_so_many_texts() -> None:
    text, views = b"z" * 1_001, 100
    one = (1_001).to_bytes(4, "little") + text[:4] + bytes(8)
    column = pa.Array.from_buffers(pa.string_view(), views, [None, pa.py_buffer(one * views), pa.py_buffer(text)])
    is_too_large(written(pa.record_batch({"a": column})), "its own value")


def test_w3_views_in_rows_without_a_value_are_not_followed() -> None:
    # Arrow does not validate them, and reads where they point to when it casts: this one, far before its text.
    views = (9).to_bytes(4, "little") + b"nine long" + bytes(3) + (2**31 + 5).to_bytes(4, "little") + b"\x80" * 12
    buffers = [pa.py_buffer(b"\x01"), pa.py_buffer(views), pa.py_buffer(b"some text")]
    column = pa.Array.from_buffers(pa.string_view(), 2, buffers)
    column.validate(full=True)
    assert _without_hidden_views(column).buffers()[1].to_pybytes()[16:] == bytes(16)
    assert read_columns(written(pa.record_batch({"a": column})), SMALL)["a"].to_pylist() == ["nine long", None]


def test_w3_columns_nesting_and_messages_are_bounded() -> None:
    wide = pa.record_batch({f"c{number}": pa.array([1]) for number in range(257)})
    is_too_large(written(wide), "256 fields", LIMITS)
    deep = pa.array([1])
    for _ in range(SMALL.nesting):
        deep = pa.StructArray.from_arrays([deep], names=["in"])
    is_too_large(written(pa.record_batch({"a": deep})), "nested deeper than 4")
    many = pa.Table.from_batches([pa.record_batch({"a": pa.array([1])})] * 1_000)
    is_too_large(written(many), "1,000 messages", LIMITS)
    is_too_large(written(signals(1).replace_schema_metadata({"a": "b" * 20_000})), "metadata")


def test_w3_values_without_bytes_are_bounded_too() -> None:
    # A hundred thousand times nothing is a number in the metadata, and a list of so many in Python.
    nothing = pa.ListArray.from_arrays(pa.array([0, 400_000], pa.int32()), pa.nulls(400_000))
    is_too_large(written(pa.record_batch({"a": nothing})), "25,000 may be")
    few = pa.ListArray.from_arrays(pa.array([0, 20_000], pa.int32()), pa.nulls(20_000))
    assert len(read_columns(written(pa.record_batch({"a": few})), SMALL)["a"][0]) == 20_000
    is_too_large(written(pa.record_batch({"a": few})), "values", Limits(ratio=20))


def test_w3_a_big_endian_stream_is_refused_before_arrow_turns_its_bytes() -> None:
    # No writer can be asked for one; but some single bits of a schema's message say it.
    schema, found = signals(1).schema.serialize().to_pybytes(), set[str]()
    for place in range(8, 80):
        flipped = bytearray(schema)
        flipped[place] ^= 1
        try:
            found.add(str(read_columns(bytes(flipped), SMALL).schema))
        except PayloadError as error:
            found.add(str(error))
    assert "The Arrow stream is big-endian. Send little-endian columns." in found


# Damage: whatever it is, it is a refusal or columns that can be used. A crash of Arrow would end the process, so it is
# tried out in another one.

DAMAGED = """
import sys
from tests.support.foreign import streams
from tidemark.door.column_door import to_batch
from tidemark.door.foreign_columns import _without_hidden_views, read_columns
from tidemark.model.shard_errors import WriteFormatError
from tidemark.wire.errors import PayloadError
from tidemark.wire.limits import LIMITS

stream, is_all = streams()[sys.argv[1]], len(sys.argv) > 2

def taken(data):
    try:
        batch = read_columns(bytes(data), LIMITS)
        batch.validate(full=True)
        to_batch(batch).to_pylist()
    except (PayloadError, WriteFormatError):
        return 0
    return 1

for size in range(0, len(stream), 1 if is_all else 7):
    taken(stream[:size])
for bit in range(0, 8 * len(stream), 1 if is_all else 29):
    flipped = bytearray(stream)
    flipped[bit // 8] ^= 1 << bit % 8
    taken(flipped)
print("whole", taken(stream))
"""


def damage(name: str, *more: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-c", DAMAGED, name, *more]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "whole 1" in done.stdout


@pytest.mark.parametrize("name", ["zstd", "every_type"])
def test_w3_a_truncated_or_flipped_stream_never_ends_the_process(name: str) -> None:
    damage(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", streams())
def test_w3_every_flipped_bit_of_every_stream_never_ends_the_process(name: str) -> None:
    damage(name, "all")


@given(st.sampled_from(sorted(streams())), st.data())
def test_w3_a_stream_with_another_s_bytes_is_columns_or_a_refusal(name: str, data: Any) -> None:
    found = bytearray(streams()[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = 8 * data.draw(st.integers(0, len(found) // 8 - 1))
        number = data.draw(st.sampled_from([0, 1, -1, 2**31 - 1, 2**62, -(2**63), 8, 64, 4096]))
        found[place : place + 8] = number.to_bytes(8, "little", signed=True)
    try:
        read_columns(bytes(found), LIMITS).validate(full=True)
    except PayloadError as error:
        assert str(error)  # noqa: PT017 - both ways are looked at
