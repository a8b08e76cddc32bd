from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemark.arrays.hashing import combine, hash_array
from tidemark.coordinator.slots import SLOTS, shard_of_slot, slots_of
from tidemark.model.log_schema import VECTOR

WORD = 2**64


def mixed(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) % WORD
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORD
    return value ^ (value >> 31)


def hashed_text(text: str | None) -> int:
    """The hash of a text in plain Python, a word at a time."""
    if text is None:
        return 0x9E3779B97F4A7C15
    data = text.encode()
    state = mixed(len(data))
    for at in range(0, len(data), 8):
        state = (state ^ int.from_bytes(data[at : at + 8], "little")) * 0x9FB21C651E98DF25 % WORD
        state ^= state >> 28
    return mixed(state)


@given(st.lists(st.none() | st.text(max_size=40), max_size=20))
def test_texts_hash_as_the_plain_definition_says(texts: Sequence[str | None]) -> None:
    assert hash_array(pa.array(texts, pa.string())).tolist() == [hashed_text(text) for text in texts]


def test_stored_hashes_never_change() -> None:
    columns = [pa.array(["shop", "fleet"]), pa.array(["item-1", ""]), pa.array([0, -1]), pa.array([None, "d" * 2_000])]
    assert combine(*(hash_array(column) for column in columns)).tolist() == [4094993586275898764, 1412569144334042767]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=20), st.data())
def test_a_slice_hashes_as_the_whole_does(texts: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(texts) - 1))
    array = pa.array(texts)
    assert hash_array(array.slice(start)).tolist() == hash_array(array)[start:].tolist()


def test_the_order_of_a_map_means_nothing_and_everything_else_does() -> None:
    rows = [
        {"vector_id": "v", "op": "create", "values": [1.0, 2.0], "metadata": [("a", "b"), ("c", None)]},
        {"vector_id": "v", "op": "create", "values": [1.0, 2.0], "metadata": [("c", None), ("a", "b")]},
        {"vector_id": "v", "op": "create", "values": [2.0, 1.0], "metadata": [("a", "b"), ("c", None)]},
        {"vector_id": "v", "op": "create", "values": [1.0, 2.0], "metadata": [("a", "c"), ("b", None)]},
        {"vector_id": "v", "op": "create", "values": [1.0, 2.0], "metadata": None},
        {"vector_id": "v", "op": "create", "values": [1.0, 2.0], "metadata": []},
        {"vector_id": "v", "op": "create", "values": [1.0], "metadata": [("a", "b"), ("c", None)]},
        None,
    ]
    hashes = hash_array(pa.array(rows, VECTOR)).tolist()
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == len(rows) - 1


def test_slots_are_dealt_out_evenly_and_every_shard_has_some() -> None:
    keys = pa.array([f"item-{number}" for number in range(20_000)])
    slots = slots_of(pa.array(["shop"] * 20_000), keys)
    assert slots.min() >= 0
    assert slots.max() < SLOTS
    shares = np.bincount(shard_of_slot(3)[slots])
    assert (abs(shares - 20_000 / 3) < 500).all()
