"""The notes of checks, for people who look at a home without its orchestrator."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.storage.home import Home
from tidemark.tables.check_notes import CheckNote, note_checks, read_note

RESULTS = st.dictionaries(st.sampled_from(["a", "b", "c", ""]), st.sampled_from([None, "wrong", "very wrong"]))


@settings(max_examples=25)
@given(runs=st.lists(RESULTS, max_size=5))
def test_of_each_partition_the_last_check_counts_o5(
    tmp_path_factory: pytest.TempPathFactory, runs: list[dict[str, str | None]]
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    last: dict[str, str | None] = {}
    for number, results in enumerate(runs, 1):
        note_checks(home, "deltas", results, number)
        last |= results
    wanted = CheckNote(len(runs), {name: why for name, why in last.items() if why is not None})
    assert read_note(home, "deltas") == (wanted if runs else None)


def test_a_note_that_is_damaged_or_cannot_be_written_is_none(tmp_path: Path) -> None:
    home = Home(tmp_path)
    note_checks(home, "deltas", {"a": "wrong"}, 1)
    (home.reports / "checks" / "deltas.json").write_text("{")
    assert read_note(home, "deltas") is None
    note_checks(home, "deltas", {"b": None}, 2)
    assert read_note(home, "deltas") == CheckNote(2, {})
    (tmp_path / "file").touch()
    note_checks(Home(tmp_path / "file"), "deltas", {"b": None}, 3)
