import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemark.arrays.distinct import count_distinct

texts = st.lists(st.text("ab", max_size=3), max_size=30)


@given(st.lists(texts, min_size=1, max_size=4), st.integers(0, 5))
def test_keys_are_counted_as_a_set_would_count_them(columns: list[list[str]], cut: int) -> None:
    arrays = [pa.array(["x", *column], pa.string()).slice(1)[cut:] for column in columns]
    assert count_distinct(arrays) == len({text for column in columns for text in column[cut:]})
