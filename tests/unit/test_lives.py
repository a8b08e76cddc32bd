"""A log that cannot be read is a break of generation, and no commit of an earlier life gets into a later one (C7)."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from assets.rollups.schema import COUNTS
from assets.vectors.index_asset import write_indexes
from assets.vectors.index_schema import PARTS
from resources.lake import Lake
from tidemark.model.errors import DamageError
from tidemark.observe.lake_status import read_tables
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import app_id, find_break
from tidemark.tables.plans import durable_epochs
from tidemark.tables.tiers import Tier

HOURLY_COUNTS = COUNTS[Tier.HOUR]
NAME = HOURLY_COUNTS.name


def commit(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def leave_a_hole(log: Path) -> None:
    commit(log, 1).unlink()


def put_version_five_beside_zero(log: Path) -> None:
    shutil.copy(commit(log, 2), commit(log, 5))
    commit(log, 1).unlink()
    commit(log, 2).unlink()


def truncate(log: Path) -> None:
    commit(log, 2).write_bytes(commit(log, 2).read_bytes()[:-20])


def write_garbage(log: Path) -> None:
    commit(log, 1).write_bytes(bytes(range(256)))


def take_the_metadata(log: Path) -> None:
    commit(log, 0).write_text("".join(line for line in commit(log, 0).open() if "metaData" not in line))
    commit(log, 0).with_suffix(".crc").unlink()


def take_the_protocol(log: Path) -> None:
    commit(log, 0).write_text("".join(line for line in commit(log, 0).open() if '"protocol"' not in line))
    commit(log, 0).with_suffix(".crc").unlink()


def point_at_no_checkpoint(log: Path) -> None:
    (log / "_last_checkpoint").write_text('{"version": 2, "size": 3}')


def empty_the_log(log: Path) -> None:
    for file in log.iterdir():
        file.unlink()


def empty_the_folder(log: Path) -> None:
    shutil.rmtree(log.parent)
    log.parent.mkdir()


DAMAGES: list[Callable[[Path], None]] = [
    leave_a_hole,
    put_version_five_beside_zero,
    truncate,
    write_garbage,
    take_the_metadata,
    take_the_protocol,
    point_at_no_checkpoint,
    empty_the_log,
    empty_the_folder,
]


def append(path: Path, generation: int, number: int) -> None:
    ours = CommitProperties(app_transactions=[Transaction(app_id(NAME, generation), number)])
    schema = pa.schema(DeltaTable(path).schema().to_arrow())
    write_deltalake(path, pa.Table.from_pylist([], schema=schema), mode="append", commit_properties=ours)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One table with three versions, all of them remembered as ours."""
    lake = Lake(Home(tmp_path / "home").create(), object)  # type: ignore[arg-type]
    lake.settle(HOURLY_COUNTS)
    for number in (1, 2):
        append(lake.path(NAME), 1, number)
    lake.known_file(NAME).record_commit(lake.path(NAME), number=2)
    return lake


@pytest.mark.parametrize("damage", DAMAGES)
def test_c7_a_log_that_cannot_be_read_is_set_aside_and_the_table_begins_anew(
    damage: Callable[[Path], None], lake: Lake
) -> None:
    damage(lake.path(NAME) / "_delta_log")
    assert find_break(lake.path(NAME), lake.known(NAME)) is not None
    known = lake.settle(HOURLY_COUNTS)
    assert known.generation == 2
    assert find_break(lake.path(NAME), known) is None
    assert known.version == lake_files.first_version(lake.path(NAME)) > 5
    assert DeltaTable(lake.path(NAME)).metadata().configuration.keys() >= HOURLY_COUNTS.properties.keys()
    append(lake.path(NAME), 2, 1)
    assert lake.version(NAME) == known.version + 1
    assert lake_files.marker(lake.path(NAME), app_id(NAME, 1)) is None


def test_c7_what_was_set_aside_is_kept_as_it_was_with_the_reason(lake: Lake) -> None:
    write_garbage(lake.path(NAME) / "_delta_log")
    lake.settle(HOURLY_COUNTS)
    [folder] = [path for path in lake.home.quarantine.iterdir() if path.is_dir()]
    assert commit(folder / "_delta_log", 1).read_bytes() == bytes(range(256))
    assert "cannot be read" in folder.with_name(f"{folder.name}.txt").read_text()


@pytest.mark.parametrize("version", [3, 4, 9, 500])
def test_c7_a_late_commit_of_an_earlier_life_does_not_get_into_a_table_that_was_made_anew(
    version: int, lake: Lake
) -> None:
    late = commit(lake.path(NAME) / "_delta_log", 2).read_bytes()
    shutil.rmtree(lake.path(NAME))
    known = lake.settle(HOURLY_COUNTS)
    commit(lake.path(NAME) / "_delta_log", version).write_bytes(late)
    assert find_break(lake.path(NAME), known) is None
    assert lake_files.marker(lake.path(NAME), app_id(NAME, 1)) is None
    append(lake.path(NAME), 2, 7)
    assert lake_files.marker(lake.path(NAME), app_id(NAME, 2)) == 7


def test_c7_a_commit_of_another_generation_is_a_break(lake: Lake) -> None:
    known = lake.settle(HOURLY_COUNTS)
    append(lake.path(NAME), 7, 1)
    broken = find_break(lake.path(NAME), known)
    assert broken is not None
    assert "earlier generation" in broken.why
    assert lake.settle(HOURLY_COUNTS).generation == 2


def test_c7_each_life_begins_beyond_the_ones_before(lake: Lake) -> None:
    begins = [0]
    for _ in range(3):
        shutil.rmtree(lake.path(NAME))
        begins.append(lake.settle(HOURLY_COUNTS).version)
    assert begins == sorted(set(begins))


@pytest.mark.parametrize("damage", DAMAGES[:7])
def test_status_says_in_a_sentence_that_a_log_cannot_be_read(damage: Callable[[Path], None], lake: Lake) -> None:
    damage(lake.path(NAME) / "_delta_log")
    found: Any = read_tables(lake.home)[NAME]
    assert "cannot be read" in found.error
    assert "\n" not in found.error
    shutil.copytree(lake.path(NAME), lake.path("deltas"))
    assert durable_epochs(lake.home) == {}


def test_a_disk_that_does_not_give_a_file_is_no_break_of_generation(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncate(lake.path(NAME) / "_delta_log")

    def refuse(_path: Path) -> bytes:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DamageError, match="Permission denied"):
        find_break(lake.path(NAME), lake.known(NAME))


def test_v1_the_parts_of_an_index_exist_also_when_no_vector_has_ever_lived(lake: Lake) -> None:
    write_indexes(lake, [], 0)
    assert {lake.version(spec.name) for spec in PARTS} == {0}
