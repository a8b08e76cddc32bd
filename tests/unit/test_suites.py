"""Suite files (O4): what may stand in one, and what is said about a wrong one."""

from pathlib import Path

import pytest

from assets.tables import EVERY_TABLE, TABLES
from expectations.suite import EVERY_TABLE as SHARED
from expectations.suite import SUITES, Severity, SuiteError, read_suite
from expectations.templates import suite_of
from tidemark.model.deltas import Kind, Priority, Reason, Source

HEAD = """
table: things
about: Things.
partition: hour
grain: hour
show: [id]
expectations:
"""
ENTRY = """
  - name: ids_are_positive
    sentence: Every thing has a positive id.
    severity: error
    every_row: id > 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def refused(folder: Path, text: str) -> str:
    (folder / "things.yaml").write_text(text)
    with pytest.raises(SuiteError) as error:
        read_suite("things", folder)
    return str(error.value)


def test_a_good_file_is_read(folder: Path) -> None:
    (folder / "things.yaml").write_text(HEAD + ENTRY)
    suite = read_suite("things", folder)
    assert [each.name for each in suite.expectations] == ["ids_are_positive"]
    assert suite.expectations[0].severity is Severity.ERROR


def test_what_holds_for_every_table_is_part_of_each_suite(folder: Path) -> None:
    (folder / "things.yaml").write_text(HEAD + ENTRY)
    (folder / "every_table.yaml").write_text(
        "about: All.\nexpectations:\n  - {name: general, sentence: It holds., severity: error, "
        "wrong_rows: 'SELECT {partition} FROM records'}\n"
    )
    suite = read_suite("things", folder)
    assert [each.name for each in suite.expectations] == ["ids_are_positive", "general"]
    assert suite.expectations[1].wrong_rows == "SELECT hour FROM records"


@pytest.mark.parametrize(
    ("entry", "advice"),
    [
        (ENTRY.replace("severity: error", "severity: fatal"), "Write 'severity: error'"),
        (ENTRY.replace("    sentence: Every thing has a positive id.\n", ""), "Add the field"),
        (ENTRY.replace("every_row", "each_row"), "Correct its spelling"),
        (ENTRY.replace("id > 0", "id > 0\n    unique: [id]"), "Write exactly one of"),
        (ENTRY.replace("    every_row: id > 0\n", ""), "it has no rule"),
        (ENTRY.replace("positive id.", "positive id"), "end with a full stop"),
        (ENTRY.replace("ids_are_positive", "Ids!"), "the name is not plain"),
        (ENTRY.replace("ids_are_positive", '"ids\\n"'), "the name is not plain"),
        (ENTRY.replace("every_row: id > 0", "expect: expect_column_mean_to_be_between"), "does not check single rows"),
        (ENTRY.replace("every_row: id > 0", "expect: expect_column_values_to_not_be_null"), "expect has no arguments"),
        (ENTRY + "    arguments: {column: id}\n", "arguments belong to expect"),
    ],
)
def test_a_wrong_entry_is_refused_with_the_file_the_entry_and_what_to_write(
    folder: Path, entry: str, advice: str
) -> None:
    message = refused(folder, HEAD + ENTRY.replace("ids_are_positive", "first_one") + entry)
    assert "things.yaml, entry 2 (" in message
    assert advice in message


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (HEAD + ENTRY + ENTRY, "another entry has this name"),
        (HEAD.replace("things", "others", 1) + ENTRY, "rename the file"),
        (HEAD.replace("grain: hour", "grain: fortnight") + ENTRY, "one of minute, hour, day, week"),
        (HEAD.replace("show:", "reads: [deltas]\nshow:") + ENTRY, "same_partitions"),
        ("table: [", "is not YAML"),
    ],
)
def test_a_wrong_file_is_refused(folder: Path, text: str, advice: str) -> None:
    assert advice in refused(folder, text)


def test_a_missing_file_is_refused(folder: Path) -> None:
    with pytest.raises(SuiteError, match="Every table has a suite"):
        read_suite("things", folder)


def test_every_table_has_a_suite_that_agrees_with_its_declaration() -> None:
    """O4: each table has an expectation suite."""
    assert {path.stem for path in SUITES.glob("*.yaml")} <= {*TABLES, SHARED}
    for name, spec in TABLES.items():
        suite = suite_of(name)
        assert suite.partition == spec.partition_by
        assert set(suite.show) <= set(spec.names)
        assert set(suite.reads) <= set(EVERY_TABLE)
        for expectation in suite.expectations:
            named = [value for key, value in expectation.arguments.items() if key.startswith("column")]
            assert set(named) | set(expectation.unique or []) <= set(spec.names), expectation.name


@pytest.mark.parametrize(
    ("table", "name", "words"),
    [
        ("deltas", "kind_is_known", Kind),
        ("deltas", "source_is_known", Source),
        ("deltas", "priority_is_known", Priority),
        ("dead_letters", "reason_is_known", Reason),
    ],
)
def test_the_words_of_a_suite_are_those_of_the_model(table: str, name: str, words: type) -> None:
    [expectation] = [each for each in suite_of(table).expectations if each.name == name]
    assert sorted(expectation.arguments["value_set"]) == sorted(words)  # type: ignore[call-overload]
