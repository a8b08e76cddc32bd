"""The files of a table's version that a reader has to open, without a JVM.

Belongs here: files by version, and which of them may hold rows of some time, by their partition or by the bounds that
the log stores for each file. Does not belong here: partitions, versions and history (`lake_files.py`), reading rows.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from tidemark.model.errors import DamageError
from tidemark.model.ranges import Within
from tidemark.tables.lake_files import open_table, partition_start, refuse_unreadable

# Spark truncates the bounds of times in a log to milliseconds.
BOUND_UNIT_US = 1_000


@dataclass(frozen=True)
class TableFiles:
    """A table's version as a reader needs it: its schema, as the log has it, and files with their full paths."""

    schema_json: str
    files: tuple[str, ...]


def table_files(path: Path, version: int | None = None, within: Sequence[Within] | None = None) -> TableFiles:
    """The files of a version; with `within`, only those that may hold rows of any of these times."""
    table = open_table(path, version)
    if table is None:
        raise DamageError(f"There is no table at {path}. Drain first: ./tidemark drain.")
    refuse_unreadable(table, path)
    [partition_by] = table.metadata().partition_columns
    chosen = _all_files(table) if within is None else _files_within(table, partition_by, within)
    return TableFiles(table.schema().to_json(), tuple(sorted(str(path / file) for file in chosen)))


def _all_files(table: DeltaTable) -> Iterator[str]:
    actions = table.get_add_actions(flatten=True)
    yield from map(unquote, actions.column("path").to_pylist())


def _files_within(table: DeltaTable, partition_by: str, within: Sequence[Within]) -> Iterator[str]:
    actions = table.get_add_actions(flatten=True)
    names = set(actions.schema.names)
    wanted: list[tuple[Within, Any, Any]] = []
    for each in within:
        low, high = f"min.{each.column}", f"max.{each.column}"
        if each.column == partition_by:
            low = high = f"partition.{partition_by}"
        lows, highs = (actions.column(name).to_pylist() if name in names else None for name in (low, high))
        wanted.append((each, lows, highs))
    for place, file in enumerate(actions.column("path").to_pylist()):
        if any(_may_hold(each, low and low[place], high and high[place]) for each, low, high in wanted):
            yield unquote(file)


def _may_hold(within: Within, low: Any, high: Any) -> bool:
    """Whether a file with these bounds may have a row of that time; a file without bounds may have any."""
    if low is None or high is None:
        return True
    start, end = partition_start(low), partition_start(high) + BOUND_UNIT_US
    return start < within.range.end_us and end > within.range.start_us


def spark_path(file: str) -> str:
    """The path as Spark takes it, which would read some characters in it as a pattern."""
    return "".join(f"\\{letter}" if letter in _PATTERN else letter for letter in file)


_PATTERN: Collection[str] = frozenset("\\{}[]*?^")
