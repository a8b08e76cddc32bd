"""Vector clocks (D8), against all pairs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.vectors.clocks import Clock, Conflict, ConflictKind, Relation, compare, conflicts

clocks = st.dictionaries(st.sampled_from("pqr"), st.none() | st.integers(0, 2))
KINDS = {Relation.CONCURRENT: ConflictKind.CONCURRENT, Relation.BEFORE: ConflictKind.INVERTED}


def test_a_missing_entry_is_zero() -> None:
    assert compare({"p": 0}, {}) == Relation.EQUAL
    assert compare({}, {"p": 1}) == Relation.BEFORE
    assert compare({"p": 1, "q": 0}, {"q": 1}) == Relation.CONCURRENT


@settings(max_examples=80)
@given(clocks, clocks)
def test_two_clocks_relate_as_the_partial_order_says(a: Clock, b: Clock) -> None:
    at_most = all((a.get(name) or 0) <= (b.get(name) or 0) for name in "pqr")
    at_least = all((a.get(name) or 0) >= (b.get(name) or 0) for name in "pqr")
    expected = {
        (True, True): Relation.EQUAL,
        (True, False): Relation.BEFORE,
        (False, True): Relation.AFTER,
        (False, False): Relation.CONCURRENT,
    }
    assert compare(a, b) == expected[at_most, at_least]


@settings(max_examples=80)
@given(st.lists(st.none() | clocks, max_size=12), st.integers(1, 12))
def test_conflicts_are_those_of_all_pairs_within_reach(line: list[Clock | None], look_back: int) -> None:
    known = [(place, clock) for place, clock in enumerate(line) if clock]
    expected = [
        Conflict(earlier, later, KINDS[relation])
        for number, (later, own) in enumerate(known)
        for earlier, other in known[max(0, number - look_back) : number]
        if (relation := compare(own, other)) in KINDS
    ]
    assert list(conflicts(line, look_back)) == expected
