"""Signals in the log's own types: the short way into a write says what the longer one says (C14)."""

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.door import column_door
from tidemark.door.column_door import to_batch
from tidemark.door.decode_columns import concatenate
from tidemark.door.decode_values import FIRST_US, LAST_US
from tidemark.door.plain_columns import as_it_is
from tidemark.model.log_schema import SENT_SCHEMA

NAMES = SENT_SCHEMA.names
LIMIT = 4 * 1024 * 1024
MILLIONTHS = 10**12
SIGNAL = {"entity_id": "e", "signal": "view", "count": 1, "weight_millionths": 0}
PLAIN: dict[str, Any] = {"namespace": "shop", "kind": "signal", "delta_id": "a", "event_ts": 0, "signal": SIGNAL}
REQUIRED = list(PLAIN)


def batch(rows: list[dict[str, Any]], left_out: frozenset[str] = frozenset()) -> pa.RecordBatch:
    schema = pa.schema([SENT_SCHEMA.field(name) for name in NAMES if name not in left_out])
    return pa.RecordBatch.from_pylist(rows, schema)


def signals() -> st.SearchStrategy[dict[str, Any] | None]:
    numbers = st.sampled_from([0, 1, -(2**63), 2**63 - 1, MILLIONTHS, MILLIONTHS + 1, -MILLIONTHS - 1, None])
    texts = st.sampled_from(["e", "", "é", "x" * 300, None])
    named = {"entity_id": texts, "signal": texts, "count": numbers, "weight_millionths": numbers}
    return st.just(SIGNAL) | st.fixed_dictionaries(named) | st.none()


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    odd = st.fixed_dictionaries(
        {
            "namespace": st.sampled_from(["shop", "", None]),
            "kind": st.sampled_from(["signal", "sample", "metric", None]),
            "delta_id": st.sampled_from(["a", "", None]),
            "event_ts": st.sampled_from([0, FIRST_US, FIRST_US - 1, LAST_US, LAST_US + 1, None]),
            "signal": signals(),
        },
        optional={
            "priority": st.sampled_from(["normal", "urgent"]),
            "origin": st.just("web"),
            "sample": st.just({"labels": [("a", "b")], "value": 1.0}),
        },
    )
    return st.lists(st.just(PLAIN) | odd, min_size=1, max_size=3)


@settings(max_examples=300)
@given(rows(), st.frozensets(st.sampled_from([name for name in NAMES if name not in REQUIRED])))
def test_the_short_way_gives_what_the_long_way_gives(found: list[dict[str, Any]], left_out: frozenset[str]) -> None:
    sent = batch(found, left_out)
    short = to_batch(sent)
    with patch.object(column_door, "as_it_is", lambda *_: None):
        long = to_batch(sent)
    assert short.schema.equals(long.schema)
    assert short.to_pylist() == long.to_pylist()


def test_what_a_fast_producer_sends_takes_the_short_way() -> None:
    left_out = frozenset(("origin", "vector", "sample", "priority", "source"))
    found = as_it_is(batch([PLAIN] * 3, left_out), MILLIONTHS, LIMIT)
    assert found is not None
    assert found.schema.equals(SENT_SCHEMA)
    assert found["priority"].to_pylist() == ["normal"] * 3


def test_columns_that_may_have_no_gap_stand_beside_others_in_a_group() -> None:
    whole = batch([{**PLAIN, "priority": "normal", "source": "local"}])
    strict = pa.schema([field.with_nullable(field.name in ("origin", "vector", "sample")) for field in SENT_SCHEMA])
    found = to_batch(pa.RecordBatch.from_arrays(whole.columns, schema=strict))
    assert found.schema.equals(SENT_SCHEMA)
    assert len(concatenate([found, whole])) == 2


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": "sample"},
        {"event_ts": LAST_US + 1},
        {"delta_id": None},
        {"signal": None},
        {"signal": {**SIGNAL, "count": None}},
        {"signal": {**SIGNAL, "weight_millionths": MILLIONTHS + 1}},
        {"delta_id": "x" * LIMIT},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_one_row_that_needs_a_look_sends_the_batch_the_long_way(odd: dict[str, Any]) -> None:
    assert as_it_is(batch([PLAIN, {**PLAIN, **odd}]), MILLIONTHS, LIMIT) is None
