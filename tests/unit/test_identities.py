"""The memory of recent identities is exact, bounded, and a function of the log alone (Q3)."""

from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.model.log_schema import TIMESTAMP
from tidemark.verdicts.identities import Identities, Seen


class Row(NamedTuple):
    key: str
    event_us: int
    delta_id: str
    content: int
    hashed: int


def columns(rows: list[Row], first_place: int) -> dict[str, pa.Array]:
    return {
        "namespace": pa.array(["shop"] * len(rows)),
        "key": pa.array([row.key for row in rows], pa.string()),
        "event_ts": pa.array([row.event_us for row in rows], pa.int64()).cast(TIMESTAMP),
        "delta_id": pa.array([row.delta_id for row in rows], pa.string()),
        "identity_hash": pa.array([row.hashed for row in rows], pa.int64()),
        "content_hash": pa.array([row.content for row in rows], pa.int64()),
        "epoch": pa.array(range(first_place, first_place + len(rows)), pa.int64()),
        "ordinal": pa.array([0] * len(rows), pa.int32()),
    }


def add_all(memory: Identities, rows: list[Row], cuts: list[int]) -> list[tuple[Seen, int]]:
    answers: list[tuple[Seen, int]] = []
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, end in pairwise(edges):
        if start < end:
            found = memory.add(columns(rows[start:end], start))
            answers += [
                (found[row].seen, found[row].epoch) if row in found else (Seen.NEW, 0) for row in range(end - start)
            ]
    return answers


def by_definition(rows: list[Row], capacity: int) -> list[tuple[Seen, int]]:
    """Compare with every one of the last `capacity` rows; the earliest of them that is known as first answers."""
    answers: list[tuple[Seen, int]] = []
    for place, row in enumerate(rows):
        answer = (Seen.NEW, 0)
        for earlier in range(max(0, place - capacity), place):
            other = rows[earlier]
            is_first = answers[earlier][0] is Seen.NEW
            if is_first and (other.key, other.event_us, other.delta_id) == (row.key, row.event_us, row.delta_id):
                answer = (Seen.COPY if other.content == row.content else Seen.REUSED, earlier)
                break
        answers.append(answer)
    return answers


# Few keys and two hash values for all, so that copies, reuse and hash collisions are the rule.
rows_strategy = st.lists(
    st.builds(
        lambda key, event, delta_id, content: Row(key, event, delta_id, content, hash((key, event)) % 2),
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.sampled_from("xy"),
        st.integers(0, 1),
    ),
    max_size=25,
)


cuts_strategy = st.lists(st.integers(1, 24), max_size=5)


@given(rows_strategy, st.integers(1, 12), cuts_strategy)
def test_the_memory_answers_as_a_comparison_with_the_last_deltas_would(
    rows: list[Row], capacity: int, cuts: list[int]
) -> None:
    assert add_all(Identities(capacity), rows, cuts) == by_definition(rows, capacity)


@given(rows_strategy, st.integers(1, 12), cuts_strategy)
def test_how_the_log_was_cut_into_batches_does_not_matter(rows: list[Row], capacity: int, cuts: list[int]) -> None:
    assert add_all(Identities(capacity), rows, cuts) == add_all(Identities(capacity), rows, [])


# Hashes of which only the upper half, only the lower half, or nothing tells them apart; long rows of slots are taken.
crowded_rows = st.lists(
    st.builds(
        lambda number, content, upper, lower: Row("k", number, "d", content, (upper * number % 5 << 32) + lower),
        st.integers(0, 30),
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(0, 2),
    ).map(lambda row: row._replace(hashed=row.hashed if row.event_us % 2 else row.event_us % 7)),
    max_size=120,
)


@given(crowded_rows, st.integers(1, 60), st.lists(st.integers(1, 119), max_size=8))
def test_crowded_tables_answer_the_same(rows: list[Row], capacity: int, cuts: list[int]) -> None:
    by_identity: dict[int, int] = {}
    rows = [row._replace(hashed=by_identity.setdefault(row.event_us, row.hashed)) for row in rows]
    assert add_all(Identities(capacity), rows, cuts) == by_definition(rows, capacity)


def test_a_capacity_that_no_memory_has_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 536,870,912 can"):
        Identities(2**29)


def test_memory_is_given_back_when_deltas_are_forgotten() -> None:
    memory = Identities(100)
    for start in range(0, 10_000, 50):
        memory.add(columns([Row("k", place, "d", 0, place) for place in range(start, start + 50)], start))
        assert memory.nbytes <= 100 * 300
    assert len(memory) == 100


def test_a_slice_of_something_large_does_not_keep_it_alive() -> None:
    memory = Identities(10)
    before = pa.total_allocated_bytes()
    large = pa.array(["x" * 1_000] * 10_000)
    memory.add({**columns([Row("k", 0, "d", 0, 1)], 0), "key": large.slice(5, 1)})
    del large
    assert pa.total_allocated_bytes() - before < 100_000
