"""Files that were written for a table and are not part of it yet: where they lie, and what its log says of them.

Belongs here: the folder in which Spark writes, moving its files to their places, and their statistics, which are read
from the files themselves instead of being computed. Does not belong here: the commit (`lake_commits.py`), who may
write and when (`resources/lake.py`).
"""

import json
import math
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq

from tidemark.model.errors import DamageError
from tidemark.model.timegrid import from_us
from tidemark.storage.privacy import make_directory
from tidemark.tables.lake_files import partition_start
from tidemark.tables.table_spec import STATISTICS, TableSpec

# In a table's folder, so that a file is moved and not copied. Maintenance leaves names with this beginning alone.
STAGING = "_staging"
# As in Delta: a longer text is cut, and the upper bound is then a text that is greater.
BOUND_LETTERS = 32
GREATEST_LETTER = "\U0010ffff"
# As in Delta, where a table does not name the columns itself: statistics of so many columns from the left.
BOUND_COLUMNS = 32
MILLISECOND_US = 1_000
# No bound says whether there is a NaN as well: Arrow leaves it out, and Spark takes it for greater than every number. A
# reader that went by such bounds would skip rows that it was asked for.
UNBOUNDED = ("FLOAT", "DOUBLE")


@dataclass
class Bounds:
    """What the log says of a column of one file."""

    low: Any = None
    high: Any = None
    nulls: int | None = 0
    is_known: bool = True  # whether low and high are those of all values

    def add(self, statistics: Any, rows: int) -> None:
        """Take in one row group."""
        if statistics is None or not statistics.has_null_count:
            self.nulls, self.is_known = None, False
            return
        if self.nulls is not None:
            self.nulls += statistics.null_count
        if statistics.null_count == rows:
            return  # nothing but nulls
        if not statistics.has_min_max or statistics.physical_type in UNBOUNDED:
            self.is_known = False
            return
        self.low = statistics.min if self.low is None else min(self.low, statistics.min)
        self.high = statistics.max if self.high is None else max(self.high, statistics.max)


class NewFile(NamedTuple):
    """A file that was written for a partition of a table and is not part of it yet."""

    path: str  # below the table
    partition: int  # its start in microseconds, or the number of a bucket
    bytes: int
    written_ms: int
    statistics: str  # as the log has them


def statistics_of(rows: int, bounds: Mapping[str, Bounds]) -> str:
    """The statistics of a file for its table's log; a column in a struct is named "struct.column"."""
    low, high, nulls = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for name, each in bounds.items():
        lower, upper = lower_bound(each.low), upper_bound(each.high)
        if each.is_known and lower is not None and upper is not None:
            _put(low, name, lower)
            _put(high, name, upper)
        if each.nulls is not None:
            _put(nulls, name, each.nulls)
    said = {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(said, ensure_ascii=False)


def partition_value(partition: int, *, is_bucket: bool) -> str:
    """The value of a partition in a table's log."""
    return str(partition) if is_bucket else f"{from_us(partition):%Y-%m-%d %H:%M:%S}"


@contextmanager
def staging_folder(table: Path) -> Iterator[Path]:
    """A name for a folder in which files of a table are written; call it with the table's lock held.

    What a killed writer left there is removed: nothing but a commit makes a file part of a table.
    """
    root = table / STAGING
    shutil.rmtree(root, ignore_errors=True)
    make_directory(root)
    try:
        yield root / uuid.uuid4().hex
    finally:
        shutil.rmtree(root, ignore_errors=True)


def move_in(table: Path, folder: Path, spec: TableSpec) -> list[NewFile]:
    """Move the files that Spark has written in a folder, by partition, to their places in the table."""
    found = []
    for staged in sorted(folder.glob(f"{spec.partition_by}=*/*.parquet")):
        name = staged.parent.name
        value = unquote(name.removeprefix(f"{spec.partition_by}="))
        try:
            partition = partition_start(value)
        except ValueError as error:
            raise DamageError(
                f"Rows of {spec.name} have no {spec.partition_by} ({value}). Nothing was written."
            ) from error
        footer, size = pq.read_metadata(staged), staged.stat()
        make_directory(table / name)
        target = table / name / staged.name
        staged.rename(target)
        checksum = staged.with_name(f".{staged.name}.crc")
        if checksum.exists():
            checksum.rename(target.with_name(checksum.name))
        statistics = statistics_of(footer.num_rows, bounds_of(footer, spec))
        path, written_ms = f"{name}/{staged.name}", size.st_mtime_ns // 1_000_000
        found.append(NewFile(path, partition, size.st_size, written_ms, statistics))
    return found


def bounds_of(footer: pq.FileMetaData, spec: TableSpec) -> dict[str, Bounds]:
    """The bounds of a file's columns, as the file has them; columns in lists and maps have none."""
    named = spec.properties.get(STATISTICS)
    wanted = set(named.split(",")) if named is not None else None
    found: dict[str, Bounds] = {}
    for place in range(footer.num_columns):
        column = footer.schema.column(place)
        is_wanted = place < BOUND_COLUMNS if wanted is None else column.path.split(".")[0] in wanted
        if not is_wanted or column.max_repetition_level:
            continue
        bounds = found.setdefault(column.path, Bounds())
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            bounds.add(group.column(place).statistics, group.num_rows)
    return found


def lower_bound(value: Any) -> Any:
    """The value in a log's JSON, or something below it; None if there is no such thing."""
    return _bound(value, is_upper=False)


def upper_bound(value: Any) -> Any:
    """The value in a log's JSON, or something above it; None if there is no such thing."""
    return _bound(value, is_upper=True)


def _bound(value: Any, *, is_upper: bool) -> Any:
    match value:
        case str() if len(value) > BOUND_LETTERS:
            return value[:BOUND_LETTERS] + GREATEST_LETTER if is_upper else value[:BOUND_LETTERS]
        case datetime():
            if is_upper and value.microsecond % MILLISECOND_US:
                value += timedelta(milliseconds=1)
            return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // MILLISECOND_US:03d}Z"
        case float() if not math.isfinite(value):
            return None
        case str() | int() | float():
            return value
    return None


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    *above, last = name.split(".")
    for each in above:
        values = values.setdefault(each, {})
    values[last] = value
