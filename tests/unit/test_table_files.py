"""A reader opens every file that may hold the rows it wants, and few others."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.model.errors import DamageError
from tidemark.model.ranges import Range, Within
from tidemark.model.timegrid import HOUR, HOUR_US, from_us
from tidemark.tables.lake_commits import commit_files
from tidemark.tables.lake_files import open_table
from tidemark.tables.new_files import move_in, staging_folder
from tidemark.tables.table_files import spark_path, table_files
from tidemark.tables.table_spec import TIMESTAMP, Column, TableSpec, create_table

SEEN = TableSpec(
    name="seen",
    description="What was seen, and when it was told.",
    columns=(
        Column("told_ts", TIMESTAMP, "When it was told."),
        Column("hour", TIMESTAMP, "The hour in which it was seen."),
    ),
    partition_by="hour",
    divided_by=HOUR,
)
HOURS = st.integers(0, 5)
FILES = st.lists(st.tuples(HOURS, st.lists(st.integers(0, 6 * HOUR_US), max_size=4)), max_size=6)


def made(table: Path, files: list[tuple[int, list[int]]]) -> dict[str, tuple[int, list[int]]]:
    """A table with these files, by hour and times; file → what is in it."""
    create_table(table, SEEN)
    content = {}
    for number, (hour, times) in enumerate(files):
        with staging_folder(table) as folder:
            partition = folder / f"hour={from_us(hour * HOUR_US):%Y-%m-%d %H}%3A00%3A00"
            partition.mkdir(parents=True)
            pq.write_table(pa.table({"told_ts": pa.array(times, TIMESTAMP)}), partition / f"{number}.parquet")
            opened = open_table(table)
            assert opened is not None
            [file] = moved = move_in(table, folder, SEEN)
            commit_files(opened, SEEN, moved, "seen/1", number)
            content[str(table / file.path)] = (hour, times)
    return content


@given(FILES, st.sampled_from(["hour", "told_ts"]), st.integers(0, 6 * HOUR_US), st.integers(1, 3 * HOUR_US))
def test_no_file_with_a_wanted_row_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[int, list[int]]], column: str, start: int, width: int
) -> None:
    table = tmp_path_factory.mktemp("lake") / "seen"
    content, wanted = made(table, files), Range(start, start + width)
    chosen = set(table_files(table, within=[Within(column, wanted)]).files)
    for file, (hour, times) in content.items():
        is_wanted = wanted.holds(hour * HOUR_US) if column == "hour" else any(map(wanted.holds, times))
        is_near = any(start - 2_000 <= time <= start + width + 2_000 for time in times) or not times
        if is_wanted and times:
            assert file in chosen
        if column == "told_ts" and not (min(times, default=0) <= wanted.end_us and max(times, default=0) >= start):
            assert file not in chosen or is_near
    assert set(table_files(table).files) == content.keys()
    assert not table_files(table, within=[]).files


def test_an_older_version_has_its_own_files(tmp_path: Path) -> None:
    table = tmp_path / "seen"
    first, second = made(table, [(0, [1]), (1, [2])])
    assert table_files(table, 1).files == (first,)
    assert table_files(table, 2).files == (first, second)


def test_a_table_that_is_not_there_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="Drain first"):
        table_files(tmp_path / "nothing")


def test_a_path_is_no_pattern() -> None:
    assert spark_path("/a/{b}/c*[1]?/d") == "/a/\\{b\\}/c\\*\\[1\\]\\?/d"
