"""A table, segment, plan or manifest that is not what was written is noticed, named, and repaired or refused (C7)."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assets.ingest.drain import drain
from assets.ingest.rebuild import committed_number, rebuild
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from resources.lake import Lake
from tests.support.batch import FORGETFUL, checksums, rows_of, send
from tests.support.live import TEN_O_CLOCK, hour_of, signal
from tidemark.model.ranges import Range
from tidemark.model.shard_errors import ManifestDamageError, SegmentDamageError
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.tables.plans import NotRetainedError, PlanDamageError, durable_epochs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = Range(TEN_O_CLOCK, TEN_O_CLOCK + HOUR_US)


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> Home:
    """A home of two plans that touch different hours, with a copy and a refused delta; never changed by a test."""
    home = Home(tmp_path_factory.mktemp("drained") / "home").create(FORGETFUL)
    lake = Lake(home, lambda: spark)
    send(home, [signal("a"), signal("b", at=hour_of(-1)), {"bad": 1}])
    drain(lake)
    shutil.copytree(home.lake, home.root / "first")
    send(home, [signal("a"), signal("c"), signal("d", at=hour_of(-2))], producer="other")
    drain(lake)
    return home


@pytest.fixture
def home(drained: Home, tmp_path: Path) -> Home:
    return Home(Path(shutil.copytree(drained.root, tmp_path / "copy")))


@pytest.fixture
def lake(home: Home, spark: "SparkSession") -> Lake:
    return Lake(home, lambda: spark)


def delete(home: Home, table: str, spark: "SparkSession") -> None:
    shutil.rmtree(home.lake / table)


def put_older_copy_back(home: Home, table: str, spark: "SparkSession") -> None:
    shutil.rmtree(home.lake / table)
    shutil.copytree(home.root / "first" / table, home.lake / table)


def restore(home: Home, table: str, spark: "SparkSession") -> None:
    spark.sql(f"RESTORE TABLE delta.`{home.lake / table}` TO VERSION AS OF 1").collect()


@pytest.mark.parametrize(
    ("table", "tamper", "word"),
    [
        ("deltas", delete, "deleted"),
        ("deltas", put_older_copy_back, "older copy"),
        ("deltas", restore, "RESTORE"),
        ("dead_letters", delete, "deleted"),
    ],
)
def test_a_table_that_lost_rows_is_rebuilt_under_a_new_generation(
    table: str, tamper: Callable[..., None], word: str, home: Home, lake: Lake, spark: "SparkSession"
) -> None:
    before = checksums(home)
    tamper(home, table, spark)
    result = drain(lake)
    assert word in result.noticed[table]
    assert result.number == 0
    assert checksums(home) == before
    assert lake.known(table).generation == 2
    assert lake.known(table).opening is None
    assert durable_epochs(home) == {0: 2}
    # Nothing more to do, and what arrives later is drained once, under the new generation.
    assert drain(lake).noticed == {}
    send(home, [signal("a"), signal("e")], producer="third")
    assert drain(lake).copies == 1
    assert rows_of(home, "deltas", "delta_id") == [("a",), ("b",), ("c",), ("d",), ("e",)]


def test_both_tables_deleted_while_a_plan_waits_lose_nothing(home: Home, lake: Lake, spark: "SparkSession") -> None:
    send(home, [signal("a"), signal("e"), {"bad": 2}], producer="third")
    shutil.rmtree(home.lake)
    home.lake.mkdir()
    result = drain(lake)
    assert (result.number, set(result.noticed)) == (3, {"deltas", "dead_letters"})
    assert rows_of(home, "deltas", "delta_id") == [("a",), ("b",), ("c",), ("d",), ("e",)]
    assert len(rows_of(home, "dead_letters", "epoch", "ordinal")) == 4
    assert committed_number(lake, DELTAS) == committed_number(lake, DEAD_LETTERS) == 3


def test_another_table_in_its_place_is_set_aside(home: Home, lake: Lake, spark: "SparkSession") -> None:
    before = checksums(home)
    shutil.rmtree(home.lake / "deltas")
    spark.range(3).write.format("delta").save(str(home.lake / "deltas"))
    assert "another table" in drain(lake).noticed["deltas"]
    assert checksums(home) == before
    [aside] = home.quarantine.glob("deltas-*/_delta_log")
    assert len(list(aside.glob("*.json"))) == 1


def test_c7_a_commit_of_a_killed_run_that_lands_late_leaves_no_trace(
    home: Home, lake: Lake, spark: "SparkSession"
) -> None:
    """The writer took its snapshot in an earlier life of the table, and commits in the next one."""
    before, path = checksums(home), home.lake / "deltas"
    log = path / "_delta_log"
    commit = log / f"{lake.known('deltas').version:020d}.json"
    text, number = commit.read_text(), lake.known("deltas").version + 1
    shutil.rmtree(path)
    drain(lake)
    assert checksums(home) == before
    (log / f"{number:020d}.json").write_text(text)
    lake.forget_cached_tables()
    assert drain(lake).noticed == {}
    send(home, [signal("e")], producer="third")
    drain(lake)
    assert rows_of(home, "deltas", "delta_id") == [("a",), ("b",), ("c",), ("d",), ("e",)]
    assert lake.read("deltas").count() == 5


def segment_of(home: Home) -> Path:
    return min(home.segments(0).rglob("*.parquet"))


def test_a_truncated_segment_is_refused(home: Home, lake: Lake) -> None:
    path = segment_of(home)
    path.write_bytes(path.read_bytes()[:-10])
    before = checksums(home)
    with pytest.raises(SegmentDamageError, match=r"truncated or changed"):
        rebuild(lake, DELTAS, HOUR)
    assert checksums(home) == before


def test_a_flipped_bit_in_a_segment_is_refused(home: Home, lake: Lake) -> None:
    path = segment_of(home)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentDamageError, match="another checksum"):
        rebuild(lake, DELTAS, HOUR)


def test_a_missing_segment_is_refused(home: Home, lake: Lake) -> None:
    segment_of(home).unlink()
    with pytest.raises(SegmentDamageError, match="missing"):
        rebuild(lake, DEAD_LETTERS, HOUR)


@pytest.mark.parametrize("line", [0, 1])
def test_a_missing_manifest_entry_is_refused(line: int, home: Home, lake: Lake) -> None:
    path = next(home.segments(0).glob("manifest-*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    with pytest.raises(ManifestDamageError, match="missing"):
        drain(lake)
    with pytest.raises(ManifestDamageError, match="missing"):
        rebuild(lake, DELTAS, HOUR)


def test_segments_that_a_committed_plan_names_must_still_be_in_the_manifest(home: Home, lake: Lake) -> None:
    shutil.rmtree(home.segments(0))
    with pytest.raises(NotRetainedError, match="Restore the manifest"):
        drain(lake)
    with pytest.raises(NotRetainedError, match="Restore the manifest"):
        rebuild(lake, DELTAS, HOUR)


def test_a_missing_or_damaged_plan_of_a_committed_number_is_refused(home: Home, lake: Lake) -> None:
    path = home.plans / "deltas" / "1" / "00000002.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"number":2', b'"number":3'))
    with pytest.raises(PlanDamageError, match="another checksum"):
        drain(lake)
    path.unlink()
    with pytest.raises(PlanDamageError, match="missing"):
        drain(lake)
