"""A group is decided as its writes would be one by one, and nothing that comes in columns can stop the shard."""

import json
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, sample, signal, vector
from tidemark.door.decode import Sent, decode, to_batch
from tidemark.door.decode_rows import _from_object, _plain
from tidemark.door.decode_values import millionths_of
from tidemark.door.decoded import RefusedError
from tidemark.event_time.watermarks import Watermarks
from tidemark.log.log_rows import LogRows
from tidemark.model.deltas import Delta
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import SENT_FIELDS, SENT_SCHEMA, SIGNAL, VECTOR
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import WriteFormatError
from tidemark.verdicts.arrival import Arrivals, NumberedWrite
from tidemark.verdicts.identities import Identities

SETTINGS = Settings(recent_identities=20)

deltas = st.one_of(
    st.builds(
        lambda number, entity, at: signal(f"d{number}", entity=entity, at=TEN_O_CLOCK - at),
        st.integers(0, 9),
        st.sampled_from(["a", "b", ""]),
        st.integers(0, 2),
    ),
    st.builds(lambda number: sample(f"s{number}", 1.0), st.integers(0, 3)),
    st.builds(lambda number: vector(f"v{number}", "scale", factor=2.0), st.integers(0, 3)),
    st.sampled_from([signal("late", at=0), signal("x", kind="metric"), signal("y", priority="urgent", origin="east")]),
)
forms = st.sampled_from(["objects", "json", "columns"])
writes_strategy = st.lists(
    st.tuples(st.lists(deltas, min_size=1, max_size=4), forms, st.sampled_from(["web", "till", "app"])),
    min_size=1,
    max_size=8,
)


def arrivals() -> Arrivals:
    return Arrivals(0, SETTINGS, Watermarks(SETTINGS), Identities(SETTINGS.recent_identities))


def as_form(found: list[dict[str, Any]], form: str) -> list[Sent] | pa.RecordBatch:
    if form == "json":
        return [json.dumps(delta).encode() for delta in found]
    if form == "columns":
        columns = decode(found, SeriesNames()).columns
        return to_batch(pa.RecordBatch.from_pydict({name: columns[name] for name, _ in SENT_FIELDS}))
    return list(found)


@given(writes_strategy, st.lists(st.integers(1, 7), max_size=3))
def test_how_writes_are_grouped_changes_nothing(
    found: list[tuple[list[dict[str, Any]], str, str]], cuts: list[int]
) -> None:
    writes = [
        NumberedWrite(epoch, producer, epoch, TEN_O_CLOCK + epoch * 1_000_000, as_form(rows, form))
        for epoch, (rows, form, producer) in enumerate(found, 1)
    ]
    alone, together, again = arrivals(), arrivals(), arrivals()
    one_by_one = [alone.decide([write]) for write in writes]
    edges = [0, *sorted(cut for cut in set(cuts) if cut < len(writes)), len(writes)]
    grouped = [together.decide(writes[start:end]) for start, end in pairwise(edges)]
    assert [row for rows, _ in grouped for row in rows.batch().to_pylist()] == [
        row for rows, _ in one_by_one for row in rows.batch().to_pylist()
    ]
    assert [each for _, outcomes in grouped for each in outcomes] == [outcomes[0] for _, outcomes in one_by_one]
    for rows, _ in grouped:
        batch = rows.batch()
        batch.validate(full=True)
        assert LogRows.of(batch).batch().equals(batch)
        again.remember(dict(zip(batch.schema.names, batch.columns, strict=True)))
        again.replay(rows)
    assert together.watermarks.snapshot() == alone.watermarks.snapshot()
    assert again.watermarks.current() == alone.watermarks.current()
    assert len(again.identities) == len(alone.identities)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(0.0000005)
@example(1.0000015)
@example(999_999.9999995)
@example(-2.5e-7)
def test_a_weight_in_millionths_is_that_of_its_decimal_text(weight: float) -> None:
    exact = int((Decimal(repr(weight)) * 1_000_000).to_integral_value(ROUND_HALF_EVEN))
    assert millionths_of(weight) == exact


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(["\ud800", 10**30]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.sampled_from([signal("a"), sample("a", 1.0), vector("a", "scale", factor=1.0)]),
    st.dictionaries(st.sampled_from([name for name, _ in SENT_FIELDS] + ["extra"]), anything, max_size=2),
)
def test_a_delta_that_is_surely_one_is_the_one_that_the_long_way_finds(
    base: dict[str, Any], changes: dict[str, Any]
) -> None:
    found = {**base, **changes}
    quick = _plain(found)
    if quick is not None:
        assert msgspec.json.encode(quick) == msgspec.json.encode(_from_object(found))
    try:
        by_hand = _from_object(found)
    except RefusedError:
        assert quick is None
    else:
        assert isinstance(by_hand, Delta)


def columns_of(count: int) -> dict[str, pa.Array]:
    batch = as_form([signal(f"d{number}") for number in range(count)], "columns")
    assert isinstance(batch, pa.RecordBatch)
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def texts_of(offsets: list[int], data: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(pa.array(offsets, pa.int32()).buffers()[1]), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


@pytest.mark.parametrize(
    "broken",
    [
        ([0, 1, 2], b"\xff\xfe"),
        ([0, 1_000_000_000, 2], b"ab"),
        ([0, 2, 1], b"ab"),
        ([0, -5, 2], b"ab"),
    ],
    ids=["no UTF-8", "beyond the end", "backwards", "before the start"],
)
@pytest.mark.parametrize("has_all_columns", [True, False])
@pytest.mark.parametrize("before", [0, 5_000])
def test_buffers_that_are_not_what_they_claim_are_refused_before_they_are_read(
    broken: tuple[list[int], bytes], has_all_columns: bool, before: int
) -> None:
    offsets, data = broken
    behind = [before + offset for offset in offsets]
    columns = {**columns_of(before + 2), "delta_id": texts_of([*range(before), *behind], b"x" * before + data)}
    if has_all_columns:
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=SENT_SCHEMA)
    else:
        batch = pa.RecordBatch.from_pydict({name: columns[name] for name in ("kind", "delta_id", "signal")})
    with pytest.raises(WriteFormatError):
        to_batch(batch)


def test_a_batch_in_the_right_types_is_taken_as_it_is() -> None:
    for count in (3, 5_000):
        batch = pa.RecordBatch.from_arrays(list(columns_of(count).values()), schema=SENT_SCHEMA)
        assert to_batch(batch) is batch


def test_columns_that_are_missing_or_of_another_width_are_filled_in() -> None:
    columns = columns_of(2)
    table = pa.table(
        {
            "delta_id": columns["delta_id"].cast(pa.large_string()),
            "kind": columns["kind"].dictionary_encode(),
            "namespace": columns["namespace"],
            "event_ts": columns["event_ts"],
            "signal": columns["signal"],
        }
    )
    batch = to_batch(table)
    assert batch.schema.equals(SENT_SCHEMA)
    assert batch["delta_id"].to_pylist() == ["d0", "d1"]
    assert batch["vector"].null_count == 2


def test_what_lies_hidden_below_a_missing_payload_is_no_key() -> None:
    columns = columns_of(1)
    hidden = pa.array([{"vector_id": "hidden", "op": "delete"}], VECTOR)
    children = [hidden.field(number) for number in range(VECTOR.num_fields)]
    columns["vector"] = pa.StructArray.from_arrays(children, fields=list(VECTOR), mask=pa.array([True]))
    batch = to_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=SENT_SCHEMA))
    decided, _ = arrivals().decide([NumberedWrite(1, "web", 1, TEN_O_CLOCK, batch)])
    assert decided.column("key").to_pylist() == ["item-1"]


def test_a_label_without_a_value_is_refused_and_stops_nobody() -> None:
    columns = decode([sample("a", 1.0), sample("b", 1.0)], SeriesNames()).columns
    payload = pa.array(
        [{"labels": [("host", None)], "value": 1.0}, {"labels": [("host", "a")], "value": 1.0}],
        columns["sample"].type,
    )
    batch = pa.RecordBatch.from_pydict({**{name: columns[name] for name, _ in SENT_FIELDS}, "sample": payload})
    decided, _ = arrivals().decide([NumberedWrite(1, "web", 1, TEN_O_CLOCK, to_batch(batch))])
    assert decided.column("reason").to_pylist() == ["wrong_type", None]


def test_the_least_number_of_64_bits_is_out_of_range() -> None:
    columns = columns_of(1)
    fields = [columns["signal"].field(number) for number in range(SIGNAL.num_fields)]
    fields[2] = pa.array([-(2**63)])
    columns["signal"] = pa.StructArray.from_arrays(fields, fields=list(SIGNAL))
    batch = to_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=SENT_SCHEMA))
    decided, _ = arrivals().decide([NumberedWrite(1, "web", 1, TEN_O_CLOCK, batch)])
    assert decided.column("reason").to_pylist() == ["out_of_range"]
