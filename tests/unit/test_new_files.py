"""What the log says of a new file is true of its rows, and is read from the file itself."""

import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.model.errors import DamageError
from tidemark.model.timegrid import HOUR, HOUR_US, from_us
from tidemark.tables.lake_commits import commit_files
from tidemark.tables.lake_files import open_table, partitions
from tidemark.tables.new_files import (
    STAGING,
    Bounds,
    NewFile,
    bounds_of,
    lower_bound,
    move_in,
    staging_folder,
    statistics_of,
    upper_bound,
)
from tidemark.tables.table_spec import STATISTICS, TIMESTAMP, Column, TableSpec, create_table

THINGS = TableSpec(
    name="things",
    description="Things.",
    columns=(
        Column("name", pa.string(), "A name."),
        Column("size", pa.int64(), "A size."),
        Column("weight", pa.float64(), "A weight."),
        Column("seen_ts", TIMESTAMP, "When."),
        Column("part", pa.struct([("word", pa.string())]), "A part."),
        Column("tags", pa.list_(pa.string()), "Tags."),
        Column("hour", TIMESTAMP, "The hour."),
    ),
    partition_by="hour",
    divided_by=HOUR,
)
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - the zone is given apart
# No lone surrogates: they are no text for Parquet.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def written(path: Path, rows: dict[str, list[Any]], row_group_size: int | None = None) -> pq.FileMetaData:
    schema = pa.schema([(column.name, column.type) for column in THINGS.columns if column.name in rows])
    pq.write_table(pa.table(rows, schema=schema), path, row_group_size=row_group_size)
    return pq.read_metadata(path)


@given(st.lists(st.none() | TEXTS, min_size=1), st.integers(1, 5))
def test_the_bounds_of_texts_lie_around_all_of_them_however_long_they_are(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], group: int
) -> None:
    footer = written(tmp_path_factory.mktemp("file") / "f.parquet", {"name": texts}, group)
    told = json.loads(statistics_of(len(texts), bounds_of(footer, THINGS)))
    assert told["numRecords"] == len(texts)
    assert told["nullCount"]["name"] == texts.count(None)
    there = [text.encode() for text in texts if text is not None]
    if "name" in told["minValues"]:
        assert told["minValues"]["name"].encode() <= min(there)
        assert told["maxValues"]["name"].encode() >= max(there)
        assert len(told["maxValues"]["name"]) <= 33


@given(TIMES)
def test_the_bounds_of_a_time_are_milliseconds_around_it(time: dt.datetime) -> None:
    low, high = (dt.datetime.fromisoformat(bound(time)) for bound in (lower_bound, upper_bound))
    assert low <= time <= high
    assert high - low <= dt.timedelta(milliseconds=1)


def test_a_number_that_json_does_not_have_is_no_bound() -> None:
    bounds = {"weight": Bounds(1.0, math.inf), "size": Bounds(3, 4)}
    told = json.loads(statistics_of(2, bounds))
    assert told["minValues"] == {"size": 3}
    assert told["maxValues"] == {"size": 4}


@given(st.lists(st.none() | st.floats(), min_size=1), st.integers(1, 5))
@example([1.0, 5.0, math.nan, 3.0], 2)
@example([math.nan, 1.0, 5.0], 1)
@example([1.0, math.nan, math.inf], 3)
def test_the_log_promises_nothing_of_numbers_among_which_no_bound_shows_a_nan(
    tmp_path_factory: pytest.TempPathFactory, weights: list[float | None], group: int
) -> None:
    """Spark's NaN is greater than every number: a file with one has rows above any bound of the others."""
    rows: dict[str, list[Any]] = {"weight": weights, "size": list(range(len(weights)))}
    footer = written(tmp_path_factory.mktemp("file") / "f.parquet", rows, group)
    told = json.loads(statistics_of(len(weights), bounds_of(footer, THINGS)))
    assert told["minValues"] == {"size": 0}
    assert told["maxValues"] == {"size": len(weights) - 1}
    assert told["nullCount"] == {"weight": weights.count(None), "size": 0}


def test_columns_in_structs_have_bounds_and_columns_in_lists_have_none(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {"name": ["a", "b"], "part": [{"word": "x"}, None], "tags": [["t"], []]}
    told = json.loads(statistics_of(2, bounds_of(written(tmp_path / "f.parquet", rows), THINGS)))
    assert told["minValues"] == {"name": "a", "part": {"word": "x"}}
    assert told["nullCount"] == {"name": 0, "part": {"word": 1}}


def test_a_table_that_names_its_columns_gets_the_bounds_of_no_other(tmp_path: Path) -> None:
    spec = TableSpec(**{**THINGS.__dict__, "properties": {STATISTICS: "size"}})
    footer = written(tmp_path / "f.parquet", {"name": ["a"], "size": [7]})
    assert bounds_of(footer, spec).keys() == {"size"}


def test_staged_files_become_files_of_their_partitions_and_what_a_killed_writer_left_goes(tmp_path: Path) -> None:
    table = tmp_path / "things"
    create_table(table, THINGS)
    left = table / STAGING / "of a killed run"
    left.mkdir(parents=True)
    with staging_folder(table) as folder:
        assert not left.exists()
        for hour in (3, 4):
            partition = folder / f"hour=1970-01-01 {hour:02d}%3A00%3A00"
            partition.mkdir(parents=True)
            written(partition / f"part-{hour}.parquet", {"name": ["a"] * hour})
        found = move_in(table, folder, THINGS)
    assert not (table / STAGING).exists()
    assert [file.partition for file in found] == [3 * HOUR_US, 4 * HOUR_US]
    opened = open_table(table)
    assert opened is not None
    commit_files(opened, THINGS, found, "things/1", 1)
    held = partitions(table)
    assert {start: each.rows for start, each in held.items()} == {3 * HOUR_US: 3, 4 * HOUR_US: 4}
    assert all(Path(file).is_file() for each in held.values() for file in each.files)


def test_rows_without_a_partition_are_refused(tmp_path: Path) -> None:
    nowhere = tmp_path / "staged" / "hour=__HIVE_DEFAULT_PARTITION__"
    nowhere.mkdir(parents=True)
    written(nowhere / "part.parquet", {"name": ["a"]})
    with pytest.raises(DamageError, match="have no hour"):
        move_in(tmp_path / "things", tmp_path / "staged", THINGS)


@pytest.mark.parametrize("replaced", [(), (0,), (0, HOUR_US), None], ids=["none", "one", "two", "all"])
def test_a_commit_takes_away_the_files_of_the_partitions_that_it_replaces_and_no_other(
    tmp_path: Path, replaced: tuple[int, ...] | None
) -> None:
    table = tmp_path / "things"
    create_table(table, THINGS)

    def file(start: int, name: str) -> NewFile:
        return NewFile(f"hour={from_us(start):%Y-%m-%d %H}%3A00%3A00/{name}.parquet", start, 1, 1, '{"numRecords":1}')

    def commit(files: list[NewFile], number: int, replaced: tuple[int, ...] | None) -> None:
        opened = open_table(table)
        assert opened is not None
        commit_files(opened, THINGS, files, "things/1", number, replaced=replaced)

    starts = [0, HOUR_US, 2 * HOUR_US]
    commit([file(start, "old") for start in starts], 1, ())
    commit([file(0, "new")], 2, replaced)
    gone = set(starts if replaced is None else replaced)
    names = {start: sorted(Path(name).stem for name in each.files) for start, each in partitions(table).items()}
    expected = {start: [*(["new"] if start == 0 else []), *([] if start in gone else ["old"])] for start in starts}
    assert names == {start: found for start, found in expected.items() if found}


def test_a_commit_without_files_moves_the_marker(tmp_path: Path) -> None:
    table = tmp_path / "things"
    create_table(table, THINGS)
    opened = open_table(table)
    assert opened is not None
    commit_files(opened, THINGS, [], "things/1", 7)
    again = open_table(table)
    assert again is not None
    assert again.transaction_version("things/1") == 7
