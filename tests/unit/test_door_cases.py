"""Where the two doors differed, by name: maps, clocks, times, sizes, columns, types, what is kept (C14, Q3)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.support.live import TEN_O_CLOCK, new_home, open_platform, sample, sealed_rows, signal, vector
from tests.support.two_doors import assert_same, by_columns, by_rows, columns_of, decide, reasons
from tidemark import Platform, Reason
from tidemark.cli.inputs import read_parquet
from tidemark.door.decode import DELTA_LIMIT
from tidemark.door.ownership import own_columns
from tidemark.model.log_schema import RAW_BUDGET, RAW_LIMIT, RAW_SHORT, SENT_FIELDS, SENT_SCHEMA
from tidemark.model.shard_errors import BackpressureError, EmptyWriteError, WriteFormatError
from tidemark.model.timegrid import from_us
from tidemark.verdicts.arrival import VerdictCounts

LABELS = pa.map_(pa.string(), pa.string())
CLOCK = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    "payload",
    [
        '"kind": "sample", "sample": {"labels": {"a": "x", "a": "y"}, "value": 1}',
        '"kind": "sample", "sample": {"labels": {"a": "x", "\\u0061": "y"}, "value": 1}',
        '"kind": "vector", "vector": {"vector_id": "v", "op": "delete", "clock": {"n": 1, "n": 2}}',
        '"kind": "vector", "vector": {"vector_id": "v", "op": "delete", "metadata": {"n": "1", "n": "1"}}',
    ],
)
def test_a_map_that_names_something_twice_is_refused_in_json(payload: str) -> None:
    text = f'{{"namespace": "shop", "delta_id": "a", "event_ts": 0, {payload}}}'
    for sent in (text, text.encode()):
        assert reasons(by_rows(sent)) == [Reason.MALFORMED]


def test_a_name_that_is_in_a_delta_twice_but_in_no_map_twice_is_no_repeat() -> None:
    text = json.dumps(vector("a", "delete", clock={"vector": 1, "n": 2}, metadata={"n": "n", "q": 'a"n"b'}))
    assert reasons(by_rows(text)) == [None]


@pytest.mark.parametrize(
    ("delta", "payload"),
    [
        (
            sample("a", 1.0),
            pa.array(
                [{"labels": [("h", "x"), ("a", "y"), ("h", "z")], "value": 1.0}],
                pa.struct([("labels", LABELS), ("value", pa.float64())]),
            ),
        ),
        (
            vector("a", "delete"),
            pa.array(
                [{"vector_id": "v", "op": "delete", "clock": [("n", 1), ("n", 1)]}],
                pa.struct([("vector_id", pa.string()), ("op", pa.string()), ("clock", CLOCK)]),
            ),
        ),
    ],
)
def test_a_map_that_names_something_twice_is_refused_in_columns_in_the_words_of_json(
    delta: dict[str, Any], payload: pa.Array
) -> None:
    kind = delta["kind"]
    table = columns_of({name: value for name, value in delta.items() if name != kind}, **{kind: payload})
    found = by_columns(table)[0].batch().to_pylist()[0]
    assert found["reason"] == Reason.MALFORMED
    again = by_rows(found["raw"])[0].batch().to_pylist()[0]
    assert (again["reason"], again["detail"], again["raw"]) == (found["reason"], found["detail"], found["raw"])


@pytest.mark.parametrize(
    ("clock", "reason"),
    [([("n", -1)], Reason.OUT_OF_RANGE), ([("n", None)], Reason.WRONG_TYPE), ([("n", 2**63 - 1)], None), ([], None)],
)
def test_a_clock_in_columns_is_judged_as_in_a_row(clock: list[tuple[str, int | None]], reason: Reason | None) -> None:
    delta = vector("a", "delete")
    payload = pa.array(
        [{"vector_id": "item-1", "op": "delete", "clock": clock}],
        pa.struct([("vector_id", pa.string()), ("op", pa.string()), ("clock", CLOCK)]),
    )
    envelope = {name: value for name, value in delta.items() if name != "vector"}
    row = {**envelope, "vector": {"vector_id": "item-1", "op": "delete", "clock": dict(clock)}}
    assert reasons(by_rows(row)) == [reason]
    assert_same(columns_of(envelope, vector=payload), [row])


def test_nanoseconds_are_cut_to_microseconds_in_every_form_and_refuse_nobody() -> None:
    text, moment_us = "2026-03-02T10:00:00.000001999Z", TEN_O_CLOCK + 1
    rows = [signal("a", event_ts=text), signal("b", event_ts=pd.Timestamp(text))]
    nanoseconds = pa.array([TEN_O_CLOCK * 1_000 + 1_999] * 2, pa.timestamp("ns", "UTC"))
    decided = [
        by_rows(*rows),
        by_rows(json.dumps(rows[0]), json.dumps({**rows[1], "event_ts": text}).encode()),
        by_columns(columns_of(signal("a"), signal("b"), event_ts=nanoseconds)),
        by_columns(columns_of(signal("a"), signal("b"), event_ts=pa.array([text, text]))),
    ]
    for rows_of_it, _ in decided:
        assert rows_of_it.batch()["event_ts"].cast(pa.int64()).to_pylist() == [moment_us, moment_us]
        assert rows_of_it.shared["verdict"] == "accepted"


def test_a_time_that_cannot_be_told_refuses_its_own_row_alone() -> None:
    moments = pa.array([TEN_O_CLOCK // 1_000_000, 2**62, None, -(2**62)], pa.timestamp("s"))
    found, outcomes = by_columns(columns_of(*(signal(str(row)) for row in range(4)), event_ts=moments))
    assert outcomes == [VerdictCounts(1, 0, 3)]
    assert found.batch()["reason"].to_pylist() == [None, "bad_timestamp", "missing_field", "bad_timestamp"]


def test_sizes_of_deltas_count_bytes_in_every_form() -> None:
    value = "é" * (DELTA_LIMIT // 2)  # half as many characters as bytes
    row = vector("a", "delete", metadata={"m": value})
    small = vector("b", "delete", metadata={"m": value[: len(value) // 4]})
    for rows in ([row, small], [json.dumps(each, ensure_ascii=False) for each in (row, small)]):
        assert reasons(by_rows(*rows)) == [Reason.TOO_LARGE, None]
    assert reasons(by_columns(columns_of(row, small))) == [Reason.TOO_LARGE, None]


def test_columns_that_no_delta_has_refuse_the_rows_that_have_a_value_there() -> None:
    table = columns_of(signal("a"), signal("b"), colour=pa.array(["red", None]))
    assert_same(table, [signal("a", colour="red"), signal("b")])
    assert reasons(by_columns(pa.table({"colour": ["red", "blue"]}))) == [Reason.UNKNOWN_FIELD] * 2


def test_columns_that_are_missing_refuse_every_row_by_their_name() -> None:
    found = by_columns(columns_of(signal("a"), signal("b")).drop_columns(["kind"]))[0].batch()
    assert found["reason"].to_pylist() == ["missing_field"] * 2
    assert "'kind'" in found["detail"][0].as_py()


@pytest.mark.parametrize("twice", ["kind", "signal"])
def test_a_column_that_is_there_twice_refuses_every_row_and_shows_both(twice: str) -> None:
    table = columns_of(signal("a"), signal("b"))
    again = pa.Table.from_arrays([*table.columns, table[twice]], names=[*table.column_names, twice])
    found = by_columns(again)[0].batch()
    assert found["reason"].to_pylist() == ["malformed"] * 2
    assert f"{twice} (2)" in json.loads(found["raw"][0].as_py())


def test_a_type_that_means_nothing_for_a_field_is_named_with_the_field() -> None:
    table = columns_of(signal("a"), signal("b"), delta_id=pa.array([b"a", b"b"]))
    found = by_columns(table)[0].batch()
    assert found["reason"].to_pylist() == ["wrong_type"] * 2
    assert found["detail"][0].as_py() == "Expected 'str', got 'bytes' at delta_id."


def test_a_weight_may_come_in_millionths_as_tables_keep_it() -> None:
    row = signal("a", signal={"entity_id": "e", "signal": "view", "count": 2, "weight": 1.25})
    both = {"entity_id": "e", "signal": "view", "count": 2, "weight_millionths": 1_250_000}
    assert_same(columns_of(signal("a"), signal=pa.array([both])), [row])
    assert reasons(by_columns(columns_of(signal("a"), signal=pa.array([{**both, "weight": 1.25}])))) == [
        "unknown_field"
    ]


def test_no_rows_are_no_write_whatever_their_types(tmp_path: Path) -> None:
    with open_platform(new_home(tmp_path)) as platform:
        producer = platform.producer("web")
        nothing: list[Any] = [pa.table({}), pa.table({"kind": pa.array([], pa.binary())}), [], pd.DataFrame()]
        for empty in nothing:
            with pytest.raises(EmptyWriteError):
                producer.write(empty)


def test_data_frames_are_columns_whatever_their_index(tmp_path: Path) -> None:
    frame = pd.DataFrame([signal("a"), signal("b"), signal("c", colour="red")], index=["x", "y", "z"])
    home = new_home(tmp_path)
    with open_platform(home) as platform:
        receipt = platform.producer("web").write(frame).wait()
    assert (receipt.accepted, receipt.refused) == (2, 1)
    assert [row["delta_id"] for row in sealed_rows(home)] == ["a", "b", "c"]


def test_a_frame_with_a_column_of_several_types_is_refused_with_advice(tmp_path: Path) -> None:
    frame = pd.DataFrame([signal("a"), signal("b", event_ts="2026-03-02")])
    with open_platform(new_home(tmp_path)) as platform, pytest.raises(WriteFormatError, match="send its rows as dict"):
        platform.producer("web").write(frame)


def test_what_is_kept_of_refused_rows_is_the_same_at_both_doors_however_many_there_are() -> None:
    values = [[float(at)] * length for at, length in enumerate([3, 40_000, 100, 200, 90_000, 129, 3] * 20)]
    rows = [
        {
            "namespace": "shop",
            "kind": "vector",
            "delta_id": str(at),
            "event_ts": from_us(TEN_O_CLOCK),
            "priority": "normal",
            "source": "local",
            "vector": {"vector_id": "v", "op": "rotate", "values": found},
        }
        for at, found in enumerate(values)
    ]
    kinds = pa.struct([("vector_id", pa.string()), ("op", pa.string()), ("values", pa.list_(pa.float32()))])
    table = columns_of(*rows, vector=pa.array([row["vector"] for row in rows], kinds))
    (by_row, _), (by_column, _) = by_rows(*rows), by_columns(table)
    for name in ("raw", "raw_bytes"):
        assert by_column.batch()[name].to_pylist() == by_row.batch()[name].to_pylist()
    kept = [len(raw) for raw in by_row.batch()["raw"].to_pylist()]
    assert (max(kept), kept[-1]) == (RAW_LIMIT, len(json.dumps(rows[-1], default=str)))
    assert sum(kept) < RAW_BUDGET
    assert RAW_SHORT in kept


def test_a_part_that_is_given_back_of_columns_can_be_sent_again(tmp_path: Path) -> None:
    home = new_home(tmp_path, "shards = 2\n[bounds]\ndeltas = 40\n")
    table = columns_of(signal("bad", colour="red"), *(signal(str(row), entity=f"item-{row}") for row in range(60)))
    with open_platform(home) as platform:
        producer = platform.producer("web")
        with platform.shards[1]._lock:  # so that nothing there is flushed
            filling = [signal(f"f{row}", entity=only_in(platform, 1)) for row in range(20)]
            producer.write(filling)
            with pytest.raises(BackpressureError) as full:
                producer.try_write(table)
        left = full.value.write
        assert isinstance(left, pa.Table)
        producer.write(left).wait()
    with open_platform(home) as platform:
        stored = [row for shard in platform.shards.values() for row in shard.snapshot().read().to_pylist()]
    assert sorted(row["delta_id"] for row in stored) == sorted(
        [*map(str, range(60)), "bad", *(f"f{row}" for row in range(20))]
    )
    assert [row["reason"] for row in stored if row["verdict"] == "refused"] == ["unknown_field"]


def only_in(platform: Platform, shard: int) -> str:
    """An entity of that shard."""
    return next(
        name for at in range(100) if set(platform.split([signal("x", entity=(name := f"item-{at}"))])) == {shard}
    )


@pytest.mark.parametrize("name", ["web\n", "Web", "", "w" * 64])
def test_a_shard_opens_no_producer_without_a_plain_name(tmp_path: Path, name: str) -> None:
    with open_platform(new_home(tmp_path)) as platform, pytest.raises(WriteFormatError, match="is no name"):
        platform.shards[0].open_producer(name)


def test_a_parquet_file_with_a_name_twice_in_a_map_is_read_and_that_row_refused(tmp_path: Path) -> None:
    labels = pa.array([[("a", "x"), ("a", "y")], [("a", "x")]], LABELS)
    payload = pa.StructArray.from_arrays([labels, pa.array([1, 2], pa.int16())], ["labels", "value"])
    pq.write_table(columns_of(sample("a", 1.0), sample("b", 1.0), sample=payload), tmp_path / "a.parquet")
    [(rows, done)] = read_parquet(tmp_path / "a.parquet")
    assert (reasons(by_rows(*rows)), done) == ([Reason.MALFORMED, None], 1.0)


# Every type that Arrow has.

UNION = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
ARRAYS: dict[str, pa.Array] = {
    **{
        str(kind): pa.array([1, 2], kind)
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float32(), pa.float64(), pa.date32(), pa.time32("s"), pa.time64("ns")),
            *(
                pa.timestamp("s"),
                pa.timestamp("ns", "UTC"),
                pa.duration("ns"),
                pa.decimal128(5, 1),
                pa.decimal256(50, 2),
            ),
            *(pa.decimal32(5, 1), pa.decimal64(5, 1)),
        )
    },
    "date64": pa.array([0, 86_400_000], pa.date64()),
    "float16": pa.array(np.array([1, 2], np.float16)),
    "bool": pa.array([True, False]),
    "null": pa.nulls(2),
    **{str(kind): pa.array(["a", "b"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{
        str(kind): pa.array([b"a", b"b"], kind)
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))
    },
    **{
        str(kind): pa.array([[1], [2]], kind)
        for kind in (
            *(pa.list_(pa.int64()), pa.large_list(pa.int8()), pa.list_(pa.float32(), 1)),
            *(pa.list_view(pa.int32()), pa.large_list_view(pa.float64())),
        )
    },
    "nested list": pa.array([[[1]], [[2], None]]),
    "interval": pa.array([(1, 2, 3), (4, 5, 6)], pa.month_day_nano_interval()),
    "struct": pa.array([{"a": {"b": 1}}, {"a": None}]),
    "empty struct": pa.array([{}, {}], pa.struct([])),
    "map": pa.array([[("a", "b")], []], LABELS),
    "map of numbers": pa.array([[(1, 2)], []], pa.map_(pa.int8(), pa.int8())),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "dictionary of numbers": pa.array([1, 2]).dictionary_encode(),
    "runs": pc.run_end_encode(pa.array(["a", "b"])),
    "sparse union": UNION,
    "dense union": pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    ),
    "uuid": pa.array([b"0123456789abcdef"] * 2, pa.uuid()),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "{}"])),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1], pa.int8())),
    "date beyond": pa.array([2**31 - 1, -(2**31)], pa.int32()).view(pa.date32()),
    "duration beyond": pa.array([2**63 - 1, -(2**63)], pa.duration("s")),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_column_of_any_type_in_any_field_is_accounted_for_row_by_row(name: str) -> None:
    array = ARRAYS[name]
    deltas = [vector("a", "scale", factor=1.0), signal("a"), sample("a", 1.0)]
    tables = []
    for delta in deltas:
        table = columns_of(delta, delta)
        kind = delta["kind"]
        tables += [columns_of(delta, delta, **{field: array}) for field, _ in SENT_FIELDS] + [
            columns_of(delta, delta, extra=array)
        ]
        payload = table[kind].combine_chunks()
        names = [field.name for field in SENT_SCHEMA.field(kind).type]
        for field in [*names, "weight", "extra"]:
            children = {child.name: payload.field(child.name) for child in payload.type} | {field: array}
            made = pa.StructArray.from_arrays(list(children.values()), list(children))
            tables.append(columns_of(delta, delta, **{kind: made}))
    decided, outcomes = decide(*(own_columns(table) for table in tables))
    assert [sum(outcome) for outcome in outcomes] == [2] * len(tables)
    decided.batch().validate(full=True)
    assert all(row["raw"] for row in decided.batch().to_pylist() if row["verdict"] == "refused")
