"""CONTRIBUTING says which files an addition touches; and no other file of the product knows the things one by one.

A file that names a member of an enum (an operation, a policy, a kind …) has to be looked at when there is another one.
So those that do are in the table, or are listed here with the reason why a new member leaves them alone.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from assets.windows.lateness import LATE
from expectations.templates import OUTCOMES
from tidemark.door.payloads import PAYLOAD_ROWS
from tidemark.log.batch_record import Trigger
from tidemark.model.deltas import KINDS, Delta, Kind, Reason
from tidemark.model.operations import CODES, OPERANDS, Operation
from tidemark.model.operations import RULES as OPERATIONS
from tidemark.streams.late_policies import RULES as POLICIES
from tidemark.streams.late_policies import LatePolicy
from tidemark.vectors import loops
from tidemark.verdicts.payload_checks import PAYLOAD_CHECKS

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("src", "assets", "resources", "expectations", "orchestration", "streams")
# How many files of the product an addition may touch.
MOST, MOST_OF = 3, {"a kind of delta": 5}


class Item(NamedTuple):
    """Something that can be added: the enum of what there is, and who may name its members beside the row's files."""

    members: type[StrEnum]
    others: Mapping[str, str]  # file or folder → why a new member leaves it alone
    also: Mapping[str, str] = {}  # other names for members, in Python
    common: tuple[str, ...] = ()  # members whose words say other things, too: as texts they do not count
    alone: int = 0  # so many members may be named anywhere: a file about one of them need not know of others


DEMO = "made-up deltas that are wrong in one way each"
EXAMPLES = "definitions that use one"
ITEMS = {
    "an operation on vectors": Item(
        Operation,
        {
            "orchestration/demo/malformed.py": DEMO,
            "orchestration/demo/traffic.py": "shares of those that are named; others are sent by what they need",
            "src/tidemark/cli/parquet_pieces.py": "how a text is decoded is called replace, too",
        },
        also={name: name for name in Operation.__members__},
        common=("OFFSET",),  # a field of windows
    ),
    "a late policy": Item(LatePolicy, {"streams/": EXAMPLES}),
    "a kind of delta": Item(
        Kind,
        {
            "orchestration/demo/malformed.py": DEMO,
            "src/tidemark/model/log_schema.py": "types by name, for what is about one kind alone",
        },
        also={kind.value.title(): kind.name for kind in Kind},
        alone=1,
    ),
    "a reason for a refusal": Item(
        Reason,
        {
            "src/tidemark/door/": "each reason is given where it is found",
            "src/tidemark/verdicts/": "each reason is given where it is found",
            "assets/ingest/transform.py": "the two reasons of copies that only the drain sees",
            "expectations/suites/dead_letters.yaml": "the two reasons of copies that only the drain sees",
            "src/tidemark/observe/account.py": "copies and reused ids count apart from refusals",
            "src/tidemark/counts/warm/rollups.py": "reused ids, whose minutes are counted anew",
            "src/tidemark/testing/model.py": "a server for tests refuses what is no JSON object, and nothing else",
            "src/tidemark/wire/errors.py": "a whole write that could never be taken is called too_large, too",
            "orchestration/demo/generator.py": "an id that is used again, which takes two deltas",
            "src/tidemark/vectors/chain.py": "what became of a delta in the fold is called out_of_range, too",
        },
        common=("DUPLICATE",),  # a verdict
    ),
    "a trigger for batches": Item(
        Trigger,
        {"src/tidemark/coordinator/core.py": "the shard alone knows of its own shutdown"},
        common=("TIME", "COUNT", "SIZE"),  # names of fields, and of options
    ),
}


def rows() -> dict[str, list[str]]:
    """What can be added → the files that CONTRIBUTING names for it."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Where a line of code goes")[1].split("\n## ")[0]
    found: dict[str, list[str]] = {}
    for line in section.split("| to add | touch |")[1].splitlines()[2:]:
        if not line.startswith("|"):
            break
        _, item, files, _ = line.split("|")
        assert item.strip() not in found, f"{item.strip()} has two rows"
        found[item.strip()] = re.findall(r"`([^`]+)`", files)
    return found


@pytest.mark.parametrize(
    "item", [*ITEMS, "a tier of counts", "a command", "a rule for a table", "how often a sensor looks"]
)
def test_everything_that_is_often_added_has_a_row(item: str) -> None:
    assert rows()[item]


@pytest.mark.parametrize("item", rows())
def test_a_row_names_few_files_and_each_of_them_exists(item: str) -> None:
    files = rows()[item]
    assert not [name for name in files if not (ROOT / name).is_file()]
    product = [name for name in files if name.startswith(PRODUCT)]
    assert 1 <= len(product) <= MOST_OF.get(item, MOST)


def texts_of(node: Any) -> Iterator[str]:
    """Every text in a YAML file."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from (*texts_of(name), *texts_of(value))
    elif isinstance(node, list):
        for value in node:
            yield from texts_of(value)
    elif isinstance(node, str):
        yield node


class Words(NamedTuple):
    """What of a file could name a member."""

    texts: frozenset[str]  # literals, without docstrings
    names: frozenset[str]  # what is imported by name, or reached as `enum.member` or `module.name`


@cache
def words_of(path: Path) -> Words:
    source = path.read_text()
    if path.suffix == ".yaml":
        return Words(frozenset(texts_of(yaml.safe_load(source))), frozenset())
    return words_in(source)


def words_in(source: str) -> Words:
    tree = ast.parse(source)
    told = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    texts, names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            texts.add(node.value)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{(node.module or '').rpartition('.')[2]}.{alias.name}" for alias in node.names}
    return Words(frozenset(texts), frozenset(names))


def named_in(words: Words, item: Item) -> set[str]:
    """The members that are named: as such, as a literal, between quotes in a query, or under another name."""
    enum = item.members.__name__
    places = ("loops", "deltas", "log_schema")
    found = {member.name for member in item.members if f"{enum}.{member.name}" in words.names}
    found |= {name for other, name in item.also.items() if any(f"{place}.{other}" in words.names for place in places)}
    for member in item.members:
        of_payload = rf"|\b{member.value}\.`?[a-z]" if item.members is Kind else ""
        pattern = re.compile(rf"^{member.value}$|'{member.value}'{of_payload}")
        if member.name not in item.common and any(map(pattern.search, words.texts)):
            found.add(member.name)
    return found


def product_files() -> list[Path]:
    return [
        path for folder in PRODUCT for suffix in ("py", "yaml") for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
    ]


@pytest.mark.parametrize("item", ITEMS)
def test_no_other_file_names_them_one_by_one(item: str) -> None:
    wanted, found, needless = ITEMS[item], {}, set(ITEMS[item].others)
    for path in product_files():
        name = path.relative_to(ROOT).as_posix()
        members = named_in(words_of(path), wanted)
        if name in rows()[item] or len(members) <= wanted.alone:
            continue
        reasons = {other for other in wanted.others if name.startswith(other)}
        needless -= reasons
        if not reasons:
            found[name] = sorted(members)
    assert not found, "these have to be changed for another one: let them follow from its declaration"
    assert not needless, "these name none any more"


@pytest.mark.parametrize("item", ITEMS)
def test_the_first_file_of_a_row_declares_them_all(item: str) -> None:
    first, *_ = rows()[item]
    declared = named_in(words_of(ROOT / first), ITEMS[item])
    assert declared >= set(ITEMS[item].members.__members__) - set(ITEMS[item].common)


def test_a_mention_is_found_however_it_is_written() -> None:
    item = ITEMS["an operation on vectors"]
    for source in (
        "Operation.SCALE",
        "loops.SCALE",
        "from tidemark.vectors.loops import SCALE",
        "op == 'scale'",
        "query = \"WHERE op = 'scale' AND true\"",
    ):
        assert named_in(words_in(source), item) == {"SCALE"}, source
    assert not named_in(words_in('"""It can scale."""\nfactor = "on a scale"'), item)
    kinds = ITEMS["a kind of delta"]
    assert named_in(words_in("sql = 'vector.op IS NULL OR signal.`count` > 1'"), kinds) == {"VECTOR", "SIGNAL"}
    assert named_in(words_in("from tidemark.model.deltas import Sample"), kinds) == {"SAMPLE"}


def test_payload_columns_are_listed_once() -> None:
    listed = [path for path in product_files() if re.search(r"^_?PAYLOADS\b.*=", path.read_text(), re.MULTILINE)]
    assert [path.relative_to(ROOT).as_posix() for path in listed] == ["src/tidemark/model/deltas.py"]


def test_everything_that_follows_from_a_declaration_knows_all_of_them() -> None:
    assert set(OPERATIONS) == set(CODES) == set(Operation)
    assert {name: getattr(loops, name) for name in Operation.__members__} == {
        operation.name: code for operation, code in CODES.items()
    }
    assert all(set(rule.needs) <= set(OPERANDS) for rule in OPERATIONS.values())
    assert set(POLICIES) == set(LATE) == set(OUTCOMES) == set(LatePolicy)
    assert set(KINDS) == set(PAYLOAD_ROWS) == set(PAYLOAD_CHECKS) == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_a_payload_is_declared_with_the_fields_that_producers_write(kind: Kind) -> None:
    """D1: the log keeps what was sent, and under the same names unless it keeps millionths of it."""
    [declared] = [field for field in msgspec.structs.fields(Delta) if field.name == kind]
    [payload] = [each for each in declared.type.__args__ if each is not type(None)]
    rule = KINDS[kind]
    sent = {field.millionths_of or name: field for name, field in rule.fields.items()}
    assert list(sent) == [field.name for field in msgspec.structs.fields(payload)]
    for field in msgspec.structs.fields(payload):
        assert sent[field.name].is_required <= field.required
        if (default := sent[field.name].default) is not None:
            assert field.default == default
    assert {rule.key, rule.labels} - {None} < set(rule.fields)
    assert (rule.key is None) != (rule.labels is None)
