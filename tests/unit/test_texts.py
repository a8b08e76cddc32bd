"""Texts by the thousand are found as a dictionary finds them, whatever their hashes and lengths."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.coordinator.hashing import hash_bytes
from resources.counters import texts as module
from resources.counters.names import NOBODY, Names

TEXTS = st.one_of(
    st.text(max_size=6),
    st.text(alphabet="ab\0", min_size=6, max_size=10),  # around the end of a word
    st.text(alphabet="x", min_size=28, max_size=36),  # around the longest that is compared in columns
    st.builds(lambda end: "a" * 40 + end, st.text(max_size=3)),
)


@settings(max_examples=150)
@given(batches=st.lists(st.lists(TEXTS, max_size=12), max_size=8), hashes=st.sampled_from([1, 2, 3, 2**64 - 1]))
def test_names_are_found_as_in_a_dictionary_however_many_share_a_hash(batches: list[list[str]], hashes: int) -> None:
    short = module._hashes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_hashes", lambda *given: short(*given) % np.uint64(hashes))
        patch.setattr(module, "hash_bytes", lambda *given: hash_bytes(*given) % np.uint64(hashes))
        names, expected = Names(1_000), dict[str, int]()
        group = names.open("shop", "view")
        for number, batch in enumerate(batches):
            before = [expected.get(text, NOBODY) for text in batch]
            assert group.find(batch).tolist() == before
            for text in batch:
                expected.setdefault(text, len(expected))
            given_texts = pa.array(["before", *batch], pa.string())[1:] if number % 2 else batch
            assert names.take(group, given_texts).tolist() == [expected[text] for text in batch]
        assert group.texts.texts() == list(expected)
        assert names.rows == len(expected)


def test_a_table_that_grows_finds_all_that_it_had() -> None:
    names = Names(100_000)
    group = names.open("shop", "view")
    texts = [f"item-{number * 7919 % 50_000}" for number in range(50_000)]
    for start in range(0, 50_000, 1_234):
        names.take(group, texts[start : start + 1_234])
    assert group.find(texts).tolist() == list(range(50_000))
    assert group.find(["item", "item-50000", ""]).tolist() == [NOBODY] * 3
