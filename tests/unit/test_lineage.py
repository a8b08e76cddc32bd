"""What is remembered of partitions is what the table's log says, and never more."""

from pathlib import Path
from shutil import copytree, rmtree

import pytest

from tests.support.small_lake import Event, SmallLake
from tidemark.model.errors import DamageError
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.lineage import FOREIGN, NOBODY_KNOWS, UNKNOWN, Input, Lineage, LineageFile, Made, follow
from tidemark.tables.tiers import Tier

FIRST, SECOND = 10 * HOUR_US, 11 * HOUR_US


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    made = SmallLake(Home(tmp_path / "home").create())
    made.send([Event(FIRST), Event(SECOND)])
    made.roll_up(Tier.MINUTE)
    return made


def read(lake: SmallLake, table: str = "minute_counts") -> Lineage:
    path = lake.home.lake / table
    state = lake_files.table_state(path)
    assert state is not None
    return follow(LineageFile(lake.home.plans, table).read(), path, table, state)


def test_a_partition_remembers_when_it_changed_and_what_it_was_made_from(lake: SmallLake) -> None:
    assert read(lake).partitions == {FIRST: Made(1, 1, 1), SECOND: Made(1, 1, 1)}
    lake.send([Event(SECOND)])
    lake.roll_up(Tier.MINUTE, [SECOND])
    assert read(lake).partitions == {FIRST: Made(1, 1, 1), SECOND: Made(2, 2, 1)}
    assert read(lake, "deltas").changed(FIRST) == 1
    assert read(lake, "deltas").changed(SECOND) == 2
    assert read(lake, "deltas").changed(0) == -1


def test_what_was_computed_and_is_empty_is_remembered_too(lake: SmallLake) -> None:
    lake.roll_up(Tier.MINUTE, [FIRST, 0])
    assert read(lake).partitions[0] == Made(-1, 1, 1)


def test_a_commit_that_nobody_remembered_is_read_from_the_log(lake: SmallLake) -> None:
    lake.roll_up(Tier.MINUTE, [FIRST], is_remembered=False)
    assert read(lake).partitions[FIRST] == Made(2, UNKNOWN)
    lake.tamper(Tier.MINUTE, SECOND)
    assert read(lake).partitions[SECOND] == Made(3, FOREIGN)


def test_who_else_changed_rows_is_not_hidden_by_a_commit_of_ours(lake: SmallLake) -> None:
    lake.tamper(Tier.MINUTE, SECOND)
    lake.roll_up(Tier.MINUTE, [FIRST])
    assert read(lake).partitions[SECOND].source == FOREIGN


def test_without_the_memory_the_log_says_what_changed_but_not_from_what(lake: SmallLake) -> None:
    (lake.home.plans / "minute_counts" / "provenance.json").unlink()
    assert read(lake).partitions == {FIRST: Made(1, UNKNOWN), SECOND: Made(1, UNKNOWN)}
    assert read(lake).is_whole


def test_what_the_log_no_longer_says_nobody_knows(lake: SmallLake) -> None:
    (lake.home.plans / "deltas" / "provenance.json").unlink()
    path = lake.home.lake / "deltas"
    state = lake_files.table_state(path)
    assert state is not None
    lake_files.commit_file(path, 0).unlink()
    found = follow(Lineage(), path, "deltas", state)
    assert not found.is_whole
    assert found.changed(0) == NOBODY_KNOWS


def test_an_older_copy_or_another_table_is_not_believed_to_be_what_is_remembered(lake: SmallLake) -> None:
    path = lake.home.lake / "minute_counts"
    copytree(path, path.with_name("older"))
    lake.roll_up(Tier.MINUTE, [FIRST])
    rmtree(path)
    path.with_name("older").rename(path)
    assert read(lake).partitions == {FIRST: Made(1, UNKNOWN), SECOND: Made(1, UNKNOWN)}


def test_files_that_are_only_rewritten_change_nothing(lake: SmallLake) -> None:
    table = lake_files.open_table(lake.home.lake / "minute_counts")
    assert table is not None
    lake.roll_up(Tier.MINUTE, [FIRST])
    before = read(lake).partitions
    table.update_incremental()
    table.optimize.compact()
    LineageFile(lake.home.plans, "minute_counts").record(lake.home.lake / "minute_counts")
    assert read(lake).partitions == before


def test_a_damaged_memory_says_what_to_do(lake: SmallLake) -> None:
    (lake.home.plans / "deltas" / "provenance.json").write_text("{")
    with pytest.raises(DamageError, match="Delete it"):
        LineageFile(lake.home.plans, "deltas").read()


def test_a_memory_of_a_table_that_is_gone_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="vanished"):
        LineageFile(tmp_path, "deltas").record(tmp_path / "deltas", made_from=Input(1, 1))
