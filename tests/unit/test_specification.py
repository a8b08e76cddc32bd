"""The specification and its citations agree: every rule that is cited stands there, and every rule there is tested."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import fields

from tests.support.citations import (
    ROOT,
    decisions_in_text,
    our_files,
    rules_cited,
    rules_in_prose,
    rules_in_python,
    rules_in_text,
)
from tidemark.model.settings import Settings

SPECIFICATION = ROOT / "docs" / "specification.md"
DECISIONS = ROOT / "docs" / "decisions"
HERE = Path(__file__)
# These two name rules only to show what is a citation and what is not.
EXAMPLES = {HERE, ROOT / "tests" / "support" / "citations.py"}


def rules() -> list[tuple[str, str]]:
    """The rules of the specification, in its order: the anchor of each, and its name."""
    return re.findall(r'^- <a id="(\w+)"></a>\*\*(\w+)\*\* ', SPECIFICATION.read_text(), re.MULTILINE)


def test_each_rule_has_one_entry_with_an_anchor_of_its_own_name() -> None:
    found = rules()
    assert [name.lower() for _, name in found] == [anchor for anchor, _ in found]
    assert len(dict(found)) == len(found) > 0


def test_every_rule_that_is_cited_is_in_the_specification() -> None:
    known = {name for _, name in rules()}
    cited = {path: found for path, found in rules_cited().items() if path not in EXAMPLES}
    unknown = {str(path.relative_to(ROOT)): sorted(found - known) for path, found in cited.items() if found - known}
    assert unknown == {}, "Correct the name, or write the rule in docs/specification.md."


def test_every_rule_of_the_specification_is_named_by_a_test() -> None:
    named = set[str]()
    for path, found in rules_cited().items():
        is_test = path.name.startswith("test_") or ROOT / "chaos" in path.parents
        named |= found if is_test and path not in EXAMPLES else set()
    assert {name for _, name in rules()} - named == set(), "Name the rule in the docstring of a test that proves it."


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("holds after a crash (C7, T4).", {"C7", "T4"}),
        ("the fold of D3; rule T2 read aloud; D9's bound", {"D3", "T2", "D9"}),
        ("checkpoints (K1 to K4), the index (V1-V3)", {"K1", "K2", "K3", "K4", "V1", "V2", "V3"}),
        ("# noqa: S101, C901; UTF-8, 0xD3, x.C7, C7z, aC7, /C7/, K8s, 1.C7, T4.5", set()),
        ("The letters C 7 are no rule.", set()),
    ],
)
def test_a_citation_is_a_letter_and_a_number_as_a_whole_word(text: str, cited: set[str]) -> None:
    assert rules_in_text(text) == cited


def test_in_python_comments_docstrings_and_names_cite_and_other_strings_only_where_they_mean_to() -> None:
    source = '''
"""A module (C1)."""
# A comment: C2.
key = "item C3"
must(held, "C4", f"C5: {held} (C6)", "no C8 (but C9)")
def test_what_is_taken_c10() -> None:
    "C11 holds."
'''
    assert rules_in_python(source) == {"C1", "C2", "C4", "C5", "C6", "C9", "C10", "C11"}


def test_code_blocks_of_a_document_cite_nothing() -> None:
    assert rules_in_prose("As C1 says:\n\n    C2\n\n```python\nC3\n```\n") == {"C1"}


def test_every_decision_that_is_cited_is_a_record_by_its_four_digits() -> None:
    records = {path.name[:4] for path in DECISIONS.glob("[0-9]*.md")}
    unknown = {
        str(path.relative_to(ROOT)): sorted(found)
        for path in our_files(".py", ".md", ".yaml", ".toml")
        if path not in EXAMPLES and (found := decisions_in_text(path.read_text()) - records)
    }
    assert unknown == {}, "Cite a decision by the four digits of its record in docs/decisions."


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("(decision 0013)", {"0013"}),
        ("decisions 0013 and 0038", {"0013", "0038"}),
        ("# Why is in decisions\n    # 3, 4 and 10.", {"3", "4", "10"}),
        ("Decision 7", {"7"}),
        ("a decision in 3 steps", set()),
    ],
)
def test_numbers_of_decisions_are_found_as_they_are_written(text: str, cited: set[str]) -> None:
    assert decisions_in_text(text) == cited


def test_records_refer_to_one_another_by_numbers_that_exist() -> None:
    for path in DECISIONS.glob("*.md"):
        found = re.findall(r"\((\d{4})(?:-[\w-]+\.md)?\)", path.read_text())
        assert all(list(DECISIONS.glob(f"{number}-*.md")) for number in found), path.name


def test_each_record_of_a_decision_is_listed_by_its_readme() -> None:
    listed = re.findall(r"^\| \[(\d{4})\]\((\d{4}-[\w-]+\.md)\)", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert [file for _, file in listed] == sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))
    assert all(file.startswith(number) for number, file in listed)


def test_the_defaults_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| `([^`]+)` \|", SPECIFICATION.read_text(), re.MULTILINE)
    written = {name: tomllib.loads(f"value = {value}")["value"] for name, value in rows}
    # Of Spark and of single namespaces the guide tells.
    defaults = {name: value for name, value in settings_of(Settings()).items() if not name.startswith("spark.")}
    assert len(rows) == len(written)
    of_their_own = {"namespaces", "admission.streams"}
    assert written == {name: value for name, value in defaults.items() if name not in of_their_own}


def settings_of(found: Struct, before: str = "") -> dict[str, Any]:
    """Every setting by its dotted name."""
    values: dict[str, Any] = {}
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, Struct):
            values |= settings_of(value, f"{before}{field.name}.")
        else:
            values[f"{before}{field.name}"] = list(value) if isinstance(value, tuple) else value
    return values
