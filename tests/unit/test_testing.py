"""Deltas and expected rows as tables of text."""

import pytest

from orchestration.testing import TableTextError, as_deltas, read_table


def test_a_table_is_read_row_by_row() -> None:
    assert read_table("| a | b |\n| 1 | x y |\n| [1, 2.5] | |") == [{"a": 1, "b": "x y"}, {"a": [1, 2.5]}]


@pytest.mark.parametrize(("text", "word"), [("a | b", "begin and end"), ("| a |\n| 1 | 2 |", "Row 1 has 2 cells")])
def test_what_is_no_table_is_refused_with_the_reason(text: str, word: str) -> None:
    with pytest.raises(TableTextError, match=word):
        read_table(text)


def test_a_row_becomes_a_delta_of_the_kind_of_its_payload() -> None:
    text = """
        | event_ts             | signal.entity_id | signal.count | vector.op |
        | 2026-03-02T10:00:00Z | item-1           | 2            |           |
        | 2026-03-02T11:00:00Z |                  |              | delete    |
    """
    first, second = as_deltas(text, first_number=5)
    assert first == {
        "kind": "signal",
        "namespace": "shop",
        "delta_id": "d5",
        "event_ts": "2026-03-02T10:00:00Z",
        "signal": {"entity_id": "item-1", "count": 2},
    }
    assert (second["kind"], second["vector"], second["delta_id"]) == ("vector", {"op": "delete"}, "d6")
