"""Quick looks find only rows that are surely fine; what is made of repeated values is what Arrow would make."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.arrays.columns import constant, constant_of, nulls, odd_ids, odd_names, repeated
from tidemark.arrays.hashing import combine, hash_array, hash_rows
from tidemark.model.log_schema import SAMPLE, SIGNAL, TIMESTAMP, VECTOR
from tidemark.verdicts import conditions

# Letters at both ends of every range that matters, white space of several kinds, and what is no ASCII.
letters = st.sampled_from("aAzZ09_~!\x00\x1f \x7f\x85\xa0\u3000é日`{/:@[\n")
values = st.none() | st.text(letters, max_size=6) | st.sampled_from(["x" * 63, "x" * 64, "x" * 256, "é" * 129, "view"])
columns = st.lists(values, min_size=1, max_size=12)


def sliced(found: list[str | None]) -> pa.Array:
    """The column as a slice of a longer one: offsets that do not begin at 0."""
    return pa.array(["before", *found, "behind"], pa.string()).slice(1, len(found))


@given(columns)
@example(["a b"])
@example(["\u3000"])
def test_an_id_that_is_not_looked_at_is_neither_empty_nor_bad(found: list[str | None]) -> None:
    column = sliced(found)
    wrong = conditions.is_empty(column) | conditions.is_bad_id(column)
    assert set(np.flatnonzero(wrong)) <= set(odd_ids(column, conditions.ID_LIMIT).tolist())


@given(columns)
def test_a_name_that_is_not_looked_at_is_one_and_the_others_are_not(found: list[str | None]) -> None:
    column = sliced(found)
    wrong = ~conditions._are_names(column)
    assert np.flatnonzero(wrong).tolist() == odd_names(column).tolist()


@pytest.mark.parametrize("plain", ["entity-000123", "d", "a b", "x" * 256, "8f14e45f-ceea-467f-a1b2-000000000000"])
def test_plain_ids_are_not_looked_at(plain: str) -> None:
    assert not len(odd_ids(pa.array([plain, "other"]), conditions.ID_LIMIT))


@given(st.lists(st.sampled_from(["a", "b", "ab", "ba", ""]) | st.none(), max_size=5))
def test_a_constant_is_what_every_row_has(found: list[str | None]) -> None:
    expected = found[0] if found and len(set(found)) == 1 else None
    assert constant_of(sliced(found)) == expected


@given(st.lists(st.tuples(st.sampled_from(["a", "bb", "", "日"]), st.integers(1, 300)), min_size=1, max_size=4))
def test_repeated_texts_are_those_that_arrow_makes(found: list[tuple[str, int]]) -> None:
    expected = pa.array([value for value, count in found for _ in range(count)], pa.string())
    made = repeated([value for value, _ in found], np.array([count for _, count in found]))
    made.validate(full=True)
    assert made.equals(expected)
    assert constant(*found[0]).equals(pa.array([found[0][0]] * found[0][1], pa.string()))


@pytest.mark.parametrize("kind", [VECTOR, SAMPLE, SIGNAL, pa.string(), pa.int64()], ids=str)
@pytest.mark.parametrize("count", [1, 7, 8, 64, 1_000])
def test_a_column_without_values_is_what_arrow_makes_and_takes_no_room_for_entries_in_the_log(
    kind: pa.DataType, count: int
) -> None:
    made, by_value = nulls(count, kind), pa.array([None] * count, kind)
    made.validate(full=True)
    assert made.equals(by_value)
    assert made.null_count == count
    sizes = [pa.RecordBatch.from_arrays([column], names=["a"]).serialize().size for column in (made, by_value)]
    # Its fields are missing as well, and a field may have a bitmap for that: a bit a row, filled up to eight bytes.
    assert sizes[0] <= sizes[1] + (kind.num_fields or 1) * (count // 8 + 8)


rows = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.none() | st.text(st.characters(codec="utf-8"), max_size=20),
            "id": st.text(st.characters(codec="ascii"), max_size=20),
            "at": st.integers(-(2**62), 2**62),
            "signal": st.none()
            | st.fixed_dictionaries(
                {
                    "entity_id": st.none() | st.sampled_from(["a", "b" * 9]),
                    "signal": st.just("view"),
                    "count": st.integers(-5, 5),
                    "weight_millionths": st.none() | st.integers(0, 3),
                }
            ),
            "sample": st.none() | st.fixed_dictionaries({"labels": st.just([("a", "b")]), "value": st.floats(0, 1)}),
        }
    ),
    min_size=1,
    max_size=12,
)


@given(rows, st.integers(0, 3))
def test_rows_hashed_together_have_the_hashes_of_their_columns(found: list[dict[str, Any]], start: int) -> None:
    kinds = {"text": pa.string(), "id": pa.string(), "at": TIMESTAMP, "signal": SIGNAL, "sample": SAMPLE}
    table = {name: pa.array([row[name] for row in found], kind).slice(start) for name, kind in kinds.items()}
    size = len(table["id"])
    whole = [table["signal"], table["at"], table["id"], table["sample"]]
    again = [table["id"], table["text"]]
    made = [hash_rows(whole, size), hash_rows(["shop", *again], size)]
    for hashes, listed in zip(made, (whole, [pa.array(["shop"] * size, pa.string()), *again]), strict=True):
        assert hashes.tolist() == (combine(*(hash_array(column) for column in listed)).tolist() if size else [])
