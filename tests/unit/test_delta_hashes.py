"""The hashes of a delta are the same wherever they are worked out: with its write or its group, in one loop or many."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.arrays.columns import constant_of
from tidemark.arrays.hashing import hash_rows
from tidemark.door.column_door import to_batch
from tidemark.door.decode_columns import concatenate, decode_columns
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import SENT_SCHEMA
from tidemark.verdicts import delta_hashes as module
from tidemark.verdicts.delta_hashes import delta_hashes, of_passed, with_hashes
from tidemark.verdicts.identities import IDENTITY_COLUMNS

texts = st.text(max_size=20)


@pytest.fixture(autouse=True)
def _every_write_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_ROWS", 1)


signals = st.fixed_dictionaries(
    {
        "entity_id": texts,
        "signal": texts,
        "count": st.integers(-(2**63), 2**63 - 1),
        "weight_millionths": st.integers(-(2**63), 2**63 - 1),
    }
)
deltas = st.fixed_dictionaries(
    {
        "namespace": st.sampled_from(["shop", "shop", "fleet"]),
        "kind": st.just("signal"),
        "delta_id": texts,
        "event_ts": st.integers(-(2**50), 2**50),
        "signal": signals,
    }
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return to_batch(pa.Table.from_pylist(rows, SENT_SCHEMA))


def by_definition(batch: pa.RecordBatch) -> list[list[int]]:
    """The hash of the values of a row, one after the other, whatever they are."""
    columns = decode_columns(batch, SeriesNames()).columns
    hashed = ([columns[name] for name in IDENTITY_COLUMNS], [columns[name] for name in ("vector", "sample", "signal")])
    return [hash_rows(values, len(batch)).view(np.int64).tolist() for values in hashed]


def found_in(batch: pa.RecordBatch) -> list[list[int | None]]:
    decoded = decode_columns(batch, SeriesNames())
    namespace = constant_of(decoded.columns["namespace"])
    return [column.to_pylist() for column in delta_hashes(decoded.columns, namespace).values()]


@given(st.lists(deltas, min_size=1, max_size=12), st.integers(0, 3))
def test_a_write_that_is_hashed_where_it_is_brought_has_the_hashes_of_its_group(
    rows: list[dict[str, Any]], skipped: int
) -> None:
    batch = batch_of(rows).slice(min(skipped, len(rows) - 1))
    assert found_in(batch) == by_definition(batch)
    assert found_in(with_hashes(batch)) == by_definition(batch)


@pytest.mark.parametrize("field", ["count", "entity_id"])
def test_a_signal_with_a_gap_is_hashed_as_one(field: str) -> None:
    payload = {"entity_id": "e", "signal": "view", "count": 1, "weight_millionths": 2} | {field: None}
    batch = batch_of([{"namespace": "shop", "kind": "signal", "delta_id": "d", "event_ts": 5, "signal": payload}])
    assert found_in(batch) == by_definition(batch) == found_in(with_hashes(batch))


def test_writes_with_and_without_hashes_are_one_group() -> None:
    payload = {"entity_id": "e", "signal": "view", "count": 1, "weight_millionths": 2}
    row = {"namespace": "shop", "kind": "signal", "delta_id": "d", "event_ts": 5, "signal": payload}
    one, both = batch_of([row]), batch_of([row, row])
    for group in ([one, with_hashes(one)], [with_hashes(one), one], [with_hashes(one), with_hashes(one)]):
        assert found_in(concatenate(group)) == by_definition(both)


def test_a_series_is_hashed_with_its_group_because_it_has_no_name_before() -> None:
    sample = {"labels": [("host", "a")], "value": 1.0}
    batch = batch_of([{"namespace": "fleet", "kind": "sample", "delta_id": "d", "event_ts": 5, "sample": sample}])
    assert with_hashes(batch) is batch
    assert found_in(batch) == by_definition(batch)


def test_what_did_not_pass_has_no_hash() -> None:
    payload = {"entity_id": "e", "signal": "view", "count": 1, "weight_millionths": 2}
    row = {"namespace": "shop", "kind": "signal", "delta_id": "d", "event_ts": 5, "signal": payload}
    for batch in (batch_of([row, row]), with_hashes(batch_of([row, row]))):
        columns = decode_columns(batch, SeriesNames()).columns
        hashes = of_passed(delta_hashes(columns, "shop"), np.array([True, False]))
        assert [column.is_null().to_pylist() for column in hashes.values()] == [[False, True]] * 2
