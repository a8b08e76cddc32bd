"""The model of a suite file: the allowed contents of `suites/<table>.yaml`, and the messages about a wrong one.

Belongs here: reading and refusing. Does not belong here: Great Expectations, which takes seconds to import and is
used only where a suite becomes one of its own (`native.py`).
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct

from expectations.conditions import ROW_EXPECTATIONS
from tidemark.model.buckets import BUCKET
from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import is_name
from tidemark.model.timegrid import GRAINS, WHOLE

SUITES = Path(__file__).resolve().parent / "suites"

Model = TypeVar("Model", bound=Struct)

# Applies to every table: its expectations are part of each suite.
EVERY_TABLE = "every_table"

# The ways to find wrong rows; an entry has exactly one.
RULES = ("expect", "every_row", "unique", "wrong_rows")


class SuiteError(ConfigurationError):
    """A suite file is not usable as it stands."""


class Severity(StrEnum):
    """What follows when an expectation does not hold."""

    ERROR = "error"  # the check fails, and nothing downstream is built on this partition
    WARNING = "warning"  # the check shows it


class Extent(StrEnum):
    """How much of another table a suite reads."""

    SAME_PARTITIONS = "same_partitions"  # the rows in the time of the checked partitions
    HOUR_BEFORE = "hour_before"  # and those of the hour before: their carry-over
    THIRTY_DAYS = "thirty_days"  # and those of the thirty days before: as far back as the longest window
    INPUT = "input"  # the rows that the checked partitions are made from, by the graph
    SAME_BUCKETS = "same_buckets"  # of deltas: those of the vectors in the checked buckets, with their bucket
    EVERYTHING = "everything"


class Expectation(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that must be true: a sentence for people, and exactly one of four ways to find what is wrong."""

    name: str
    sentence: str
    severity: Severity
    expect: str | None = None  # a type of Great Expectations
    arguments: dict[str, Any] = {}  # the arguments of that type
    every_row: str | None = None  # an SQL condition that is true for every row
    unique: list[str] | None = None  # columns that no two rows of a partition share
    wrong_rows: str | None = None  # an SQL query over {batch} that returns wrong rows, with their partition


class Suite(Struct, frozen=True, forbid_unknown_fields=True):
    """What must be true of one table."""

    table: str
    about: str
    partition: str  # the column that says to which partition a row belongs
    # Width of a partition: hour, day, week or bucket; minute for a table as of one time; whole for one without any.
    grain: str
    show: list[str]  # the columns by which a person finds a wrong row
    expectations: list[Expectation]
    reads: dict[str, Extent] = {}  # other tables that the SQL names, at the versions that the record names

    @property
    def is_whole(self) -> bool:
        """Whether the table is checked as a whole, and not partition by partition."""
        return self.grain == WHOLE

    @property
    def is_by_bucket(self) -> bool:
        """Whether its partitions are buckets, by their numbers, and not times."""
        return self.grain == BUCKET.name


class _Shared(Struct, frozen=True, forbid_unknown_fields=True):
    """What must be true of every table; `{partition}` stands for the table's own partition column."""

    about: str
    expectations: list[Expectation]


@cache
def read_suite(
    table: str, folder: Path = SUITES, *, template: Path | None = None, words: tuple[tuple[str, str], ...] = ()
) -> Suite:
    """The suite of a table, with the expectations for every table; the error for a wrong file says what to write.

    A template serves many tables: each name in double angle brackets is replaced by the word for this table.
    """
    path = template or folder / f"{table}.yaml"
    suite = _decode(path, Suite, dict(words))
    if suite.table != table:
        raise SuiteError(f"{path}: the table is {suite.table!r}. Write 'table: {table}', or rename the file.")
    if suite.grain not in (grains := (*GRAINS, BUCKET.name, WHOLE)):
        known = ", ".join(grains)
        raise SuiteError(f"{path}: the grain is {suite.grain!r}. Write 'grain:' and one of {known}.")
    shared_path = folder / f"{EVERY_TABLE}.yaml"
    general = _decode(shared_path, _Shared).expectations if shared_path.exists() else []
    shared = [_for_partition(each, suite.partition) for each in general]
    seen: set[str] = set()
    for number, expectation in enumerate([*suite.expectations, *shared], start=1):
        problem = _problem(expectation, seen)
        if problem:
            raise SuiteError(f"{path}, entry {number} ({expectation.name}): {problem}")
        seen.add(expectation.name)
    return msgspec.structs.replace(suite, expectations=[*suite.expectations, *shared])


def _for_partition(expectation: Expectation, column: str) -> Expectation:
    """An expectation for every table, filled in for a table with this partition column."""
    query = expectation.wrong_rows
    return msgspec.structs.replace(expectation, wrong_rows=query and query.replace("{partition}", column))


def _decode(path: Path, model: type[Model], words: Mapping[str, str] | None = None) -> Model:
    try:
        raw = _filled(yaml.safe_load(path.read_text()), words or {}, path)
        return msgspec.convert(raw, model)
    except FileNotFoundError as error:
        raise SuiteError(f"{path} is missing. Every table has a suite: write one beside the others.") from error
    except yaml.YAMLError as error:
        raise SuiteError(f"{path} is not YAML: {error}") from error
    except msgspec.ValidationError as error:
        raise SuiteError(f"{path}{_entry_of(raw, str(error))}: {error}. {_advice(str(error))}") from error


def _filled(raw: Any, words: Mapping[str, str], path: Path) -> Any:
    """The contents of a file, with every name in double angle brackets replaced; a list may replace a name, too."""
    if isinstance(raw, dict):
        return {_filled(key, words, path): _filled(value, words, path) for key, value in raw.items()}
    if isinstance(raw, list):
        return [part for value in raw for part in _elements(value, _filled(value, words, path))]
    if not isinstance(raw, str):
        return raw
    if unknown := set(re.findall(r"<<(\w+)>>", raw)) - words.keys():
        raise SuiteError(f"{path}: nothing is known to stand for <<{min(unknown)}>>. Use one of {', '.join(words)}.")
    return re.sub(r"<<(\w+)>>", lambda found: words[found.group(1)], raw)


def _elements(raw: Any, filled: Any) -> list[Any]:
    """An element of a list; a name in double angle brackets that stands alone may become several words."""
    return filled.split(", ") if isinstance(raw, str) and re.fullmatch(r"<<\w+>>", raw) else [filled]


def _entry_of(raw: Any, message: str) -> str:
    """Which entry a message of the decoder is about, by number and name."""
    found = re.search(r"\$\.expectations\[(\d+)\]", message)
    if not found:
        return ""
    number = int(found.group(1))
    entry = raw["expectations"][number]
    name = entry.get("name") if isinstance(entry, dict) else None
    return f", entry {number + 1}" + (f" ({name})" if name else "")


def _advice(message: str) -> str:
    if "reads" in message:
        others = "hour_before, thirty_days, input, same_buckets or everything"
        return f"Write 'reads:' and below it '  table: same_partitions' (or {others})."
    if "severity" in message:
        return "Write 'severity: error' (stops what is downstream) or 'severity: warning' (only shows)."
    if "missing required field" in message:
        return f"Add the field; every entry has name, sentence, severity and one of {', '.join(RULES)}."
    if "unknown field" in message:
        return f"Correct its spelling: an entry has name, sentence, severity, arguments and one of {', '.join(RULES)}."
    return "Compare with the other suites."


def _problem(expectation: Expectation, seen: set[str]) -> str | None:
    """What is wrong with an entry and what to write instead; None if it is correct."""
    ways = [way for way in RULES if getattr(expectation, way) is not None]
    kind, arguments = expectation.expect, expectation.arguments
    allowed = ", ".join(sorted(ROW_EXPECTATIONS))
    takes = ROW_EXPECTATIONS[kind][0] if kind in ROW_EXPECTATIONS else ()
    problems = {
        "the name is not plain. Use a lower-case letter, then a-z, 0-9 and _.": not is_name(expectation.name),
        "another entry has this name. Give each its own.": expectation.name in seen,
        "the sentence is not one. Say in words what must be true, and end with a full stop.": (
            not expectation.sentence.rstrip().endswith(".")
        ),
        f"it has {' and '.join(ways) or 'no rule'}. Write exactly one of {', '.join(RULES)}.": len(ways) != 1,
        # An aggregate (a mean, a number of rows) may hold for a range of partitions, but not for each of them.
        f"{kind!r} does not check single rows. Use one of {allowed}.": kind is not None
        and kind not in ROW_EXPECTATIONS,
        "expect has no arguments. Name at least the column under 'arguments:'.": kind is not None and not arguments,
        f"{kind!r} takes {', '.join(takes)} and nothing else.": kind in ROW_EXPECTATIONS
        and not {*arguments} <= {*takes},
        "arguments belong to expect. Put the values into the SQL.": kind is None and bool(arguments),
    }
    return next((text for text, is_wrong in problems.items() if is_wrong), None)
