"""What a table holds is remembered with our last commit, and asked again as soon as its log was touched (C2, C7)."""

import os
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from assets.ingest.schema import DELTAS
from resources.lake import Lake
from tidemark.observe.lake_status import read_tables
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import app_id
from tidemark.tables.plans import Plan, PlanStore, durable_epochs

NAME = DELTAS.name


def commit(lake: Lake, number: int) -> None:
    ours = CommitProperties(app_transactions=[Transaction(app_id(NAME, 1), number)])
    schema = pa.schema(DeltaTable(lake.path(NAME)).schema().to_arrow())
    write_deltalake(lake.path(NAME), pa.Table.from_pylist([], schema=schema), mode="append", commit_properties=ours)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """`deltas` with one plan of three, which is remembered."""
    lake = Lake(Home(tmp_path / "home").create())
    lake.ensure(DELTAS)
    for number in (1, 2, 3):
        PlanStore(lake.home.plans / NAME, 1).write(Plan(number, 1, {}, [], {0: 10 * number + 1}, 0))
    commit(lake, 1)
    lake.known_file(NAME).record_commit(lake.path(NAME), number=1)
    return lake


def test_a_table_that_nobody_touched_is_not_opened_to_say_what_it_holds(lake: Lake) -> None:
    with patch.object(lake_files, "open_table", side_effect=AssertionError("it was opened")):
        assert durable_epochs(lake.home) == {0: 10}
        assert read_tables(lake.home)[NAME].version == 1


def test_a_commit_that_was_not_remembered_counts_all_the_same_c2(lake: Lake) -> None:
    """As after a crash between a commit and the note of it."""
    commit(lake, 2)
    assert durable_epochs(lake.home) == {0: 20}
    assert read_tables(lake.home)[NAME].version == 2
    # A commit without a plan is noted, too, and hides no marker.
    commit(lake, 3)
    lake.known_file(NAME).record_commit(lake.path(NAME))
    assert durable_epochs(lake.home) == {0: 30}


def test_a_commit_that_is_gone_counts_no_more_c2(lake: Lake) -> None:
    commit(lake, 2)
    lake.known_file(NAME).record_commit(lake.path(NAME), number=2)
    assert durable_epochs(lake.home) == {0: 20}
    lake_files.commit_file(lake.path(NAME), 2).unlink()
    assert durable_epochs(lake.home) == {0: 10}


def test_a_log_that_was_damaged_is_noticed_by_status_and_proves_nothing(lake: Lake) -> None:
    file = lake_files.commit_file(lake.path(NAME), 0)
    file.write_bytes(bytes(file.stat().st_size))
    assert durable_epochs(lake.home) == {}
    assert "cannot be read" in str(read_tables(lake.home)[NAME].error)


def test_files_that_were_copied_are_read_again_and_say_the_same(lake: Lake) -> None:
    for file in (lake.path(NAME) / "_delta_log").iterdir():
        os.utime(file, ns=(1, 1))
    assert durable_epochs(lake.home) == {0: 10}
