"""Vector clocks (D8), against all pairs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.vectors.clocks import Clock, Conflict, ConflictKind, conflicts

clocks = st.dictionaries(st.sampled_from("pqr"), st.none() | st.integers(0, 2))


def conflict_of(own: Clock, other: Clock) -> ConflictKind | None:
    """By the partial order, entry by entry; a missing entry is 0."""
    if all((own.get(name) or 0) >= (other.get(name) or 0) for name in "pqr"):
        return None
    is_at_most = all((own.get(name) or 0) <= (other.get(name) or 0) for name in "pqr")
    return ConflictKind.INVERTED if is_at_most else ConflictKind.CONCURRENT


def test_a_missing_entry_is_zero() -> None:
    assert not list(conflicts([{"q": 0}, {"p": 0}]))
    assert list(conflicts([{"p": 1}, {"q": 0}])) == [Conflict(0, 1, ConflictKind.INVERTED)]
    assert list(conflicts([{"q": 1}, {"p": 1, "q": 0}])) == [Conflict(0, 1, ConflictKind.CONCURRENT)]


@settings(max_examples=80)
@given(st.lists(st.none() | clocks, max_size=12), st.integers(1, 12))
def test_conflicts_are_those_of_all_pairs_within_reach(line: list[Clock | None], look_back: int) -> None:
    known = [(place, clock) for place, clock in enumerate(line) if clock]
    expected = [
        Conflict(earlier, later, kind)
        for number, (later, own) in enumerate(known)
        for earlier, other in known[max(0, number - look_back) : number]
        if (kind := conflict_of(own, other)) is not None
    ]
    assert list(conflicts(line, look_back)) == expected
