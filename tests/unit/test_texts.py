"""Texts by the thousand are found as a dictionary finds them, whatever their hashes and lengths."""

import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.counts.errors import NoTextError
from tidemark.counts.warm.names import NOBODY, Names
from tidemark.counts.warm.texts import TextTable, cut

TEXTS = st.one_of(
    st.text(max_size=6),
    st.text(alphabet="ab\0", min_size=6, max_size=10),  # around the end of a word
    st.text(alphabet="x", min_size=28, max_size=36),
    st.builds(lambda end: "a" * 40 + end, st.text(max_size=3)),
)


@settings(max_examples=100)
@given(batches=st.lists(st.lists(TEXTS, max_size=12), max_size=8), hash_bits=st.sampled_from([1, 2, 33, 64]))
def test_names_are_found_as_in_a_dictionary_however_many_share_a_hash(batches: list[list[str]], hash_bits: int) -> None:
    names, expected = Names(1_000), dict[str, int]()
    group = names.open("shop", "view")
    group.texts = TextTable(hash_bits)
    for number, batch in enumerate(batches):
        before = [expected.get(text, NOBODY) for text in batch]
        assert group.find(batch).tolist() == before
        for text in batch:
            expected.setdefault(text, len(expected))
        kind = pa.string() if number % 4 == 1 else pa.large_string()
        given_texts = pa.array(["before", *batch], kind)[1:] if number % 2 else batch
        assert names.take(group, given_texts).tolist() == [expected[text] for text in batch]
    places = group.texts.places()
    assert [group.texts.text_at(place) for place in places] == list(expected)
    assert group.texts.rows_at(places).tolist() == list(expected.values())
    offsets, data = group.texts.packed(places)
    assert [bytes(data[offsets[at] : offsets[at + 1]]).decode() for at in range(len(expected))] == list(expected)
    assert names.rows == len(expected)


def test_a_table_that_grows_finds_all_that_it_had() -> None:
    names = Names(100_000)
    group = names.open("shop", "view")
    texts = [f"item-{number * 7919 % 50_000}" for number in range(50_000)]
    for start in range(0, 50_000, 1_234):
        names.take(group, texts[start : start + 1_234])
    assert group.find(texts).tolist() == list(range(50_000))
    assert group.find(["item", "item-50000", ""]).tolist() == [NOBODY] * 3


def test_texts_that_were_too_many_are_not_there_and_leave_no_trace() -> None:
    table = TextTable(hash_bits=2)
    some, more = cut(["a", "b"]), cut(["b", "c", "d", "c"])
    assert table.take(some, 0, limit=2)[1] == 2
    rows, missing = table.find(more)
    assert (rows.tolist(), missing) == ([1, NOBODY, NOBODY, NOBODY], 3)
    assert table.take(more, 2, limit=1)[1] == 2
    assert table.find(more)[0].tolist() == [1, NOBODY, NOBODY, NOBODY]
    assert len(table) == len(table.places()) == 2


def test_whoever_looks_while_another_adds_finds_the_right_row_or_none() -> None:
    names = Names(100_000)
    group = names.open("shop", "view")
    texts = [f"item-{number}" for number in range(40_000)]
    wanted, wrong, is_over = cut(texts[::7]), [], threading.Event()
    right = np.arange(0, len(texts), 7)

    def look() -> None:
        while not is_over.is_set():
            rows, _ = group.texts.find(wanted)
            wrong.extend(rows[(rows != right) & (rows != NOBODY)].tolist())

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(0, len(texts), 500):
        names.take(group, texts[start : start + 500])
    is_over.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert group.texts.find(wanted)[0].tolist() == right.tolist()


@pytest.mark.parametrize(
    "given_texts",
    [["a", 7], ["\ud800"], pa.array(["a", None]), pa.array([1]), pa.array(["a"]).dictionary_encode()],
    ids=["a number", "half a character", "a null", "numbers", "a dictionary"],
)
def test_what_is_no_text_is_refused_by_name(given_texts: list[str]) -> None:
    with pytest.raises(NoTextError, match=r"are not texts \(.*\). Give a list of str"):
        cut(given_texts)
