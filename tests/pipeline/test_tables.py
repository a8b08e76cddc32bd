"""Tables as others see them: the same rows in every reader, features that all of them know, checksums, maintenance."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest

from assets.ingest.drain import drain
from assets.ingest.schema import DELTAS
from assets.rollups.schema import COUNTS
from assets.tables import TABLES
from resources.lake import Lake, WriteFailedError
from tests.support.batch import FORGETFUL, send
from tests.support.live import TEN_O_CLOCK, hour_of, sample, signal, vector
from tidemark.model.ranges import Range, partition_predicate
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files, table_checksums
from tidemark.tables.known_table import app_id
from tidemark.tables.tiers import Tier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOURLY_COUNTS = COUNTS[Tier.HOUR]
DDL = (
    "namespace string, entity_id string, signal string, bucket_start timestamp, "
    "count bigint, weight_sum bigint, deltas bigint"
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> Lake:
    """A lake with every table; the tests of this module only add to it."""
    home = Home(tmp_path_factory.mktemp("tables") / "home").create(FORGETFUL)
    lake = Lake(home, lambda: spark)
    created = vector("v", "create", values=[1.0], metadata={"k": None})
    deltas = [signal("a"), signal("b", at=hour_of(-1)), sample("s", 1.5), created]
    send(home, [*deltas, {"bad": "'quoted\" text"}, signal("a")])
    drain(lake)
    for spec in TABLES.values():
        lake.settle(spec)
    return lake


def counts(spark: "SparkSession", *rows: tuple[str, int, int], start_us: int = TEN_O_CLOCK) -> "DataFrame":
    start = datetime.fromtimestamp(start_us / 1_000_000, UTC)
    whole = [("shop", entity, "view", start, count, 0, deltas) for entity, count, deltas in rows]
    return spark.createDataFrame(whole, DDL).selectExpr(
        "*", "bucket_start AS bucket_hour", "bucket_start AS first_minute", "count AS lowest_minute"
    )


@pytest.mark.parametrize("table", ["deltas", "dead_letters"])
def test_every_reader_sees_the_same_rows(table: str, lake: Lake) -> None:
    path = lake.path(table)
    names = ["epoch", "ordinal", "delta_id", "event_ts", TABLES[table].partition_by]
    order = ["epoch", "ordinal"]
    found = lake_files.open_table(path)
    assert found is not None
    by_delta_rs = found.to_pyarrow_table(columns=names).sort_by([(name, "ascending") for name in order]).to_pylist()
    by_spark = [row.asDict() for row in lake.read(table).select(*names).orderBy(*order).collect()]
    by_polars = pl.read_delta(str(path)).select(names).sort(order).to_dicts()
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    extension = _duckdb_delta()
    connection.execute(f"LOAD '{extension}'")
    query = f"SELECT {', '.join(names)} FROM delta_scan('{path}') ORDER BY epoch, ordinal"
    by_duckdb = connection.execute(query).to_arrow_table().to_pylist()
    instants = [[_comparable(row, names) for row in rows] for rows in (by_delta_rs, by_polars, by_duckdb, by_spark)]
    assert instants[0]
    assert instants[0] == instants[1] == instants[2] == instants[3]


def _comparable(row: dict[str, object], names: list[str]) -> list[object]:
    values = [row[name] for name in names]
    return [
        (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() if isinstance(value, datetime) else value
        for value in values
    ]


def _duckdb_delta() -> Path:
    import duckdb_extension_delta

    return next(Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension"))


@pytest.mark.parametrize("table", sorted(TABLES))
def test_tables_use_only_features_that_every_reader_knows(table: str, lake: Lake) -> None:
    """Features are one-way doors: a new one here is a decision, not an accident."""
    found = lake_files.open_table(lake.path(table))
    assert found is not None
    protocol = found.protocol()
    generates = table in {"deltas", "dead_letters"}
    features = {"generatedColumns", "checkConstraints", "invariants", "appendOnly"} if generates else set()
    assert (protocol.min_reader_version, protocol.reader_features) == (1, None)
    assert protocol.min_writer_version == (7 if generates else 3)
    assert set(protocol.writer_features or ()) == features
    assert [field.name for field in found.schema().fields] == TABLES[table].names
    assert "delta.setTransactionRetentionDuration" not in found.metadata().configuration


def test_a_row_that_breaks_a_constraint_is_not_committed(lake: Lake, spark: "SparkSession") -> None:
    version = lake.version(HOURLY_COUNTS.name)
    with pytest.raises(WriteFailedError, match="nothing of it was committed"):
        lake.replace(HOURLY_COUNTS, counts(spark, ("x", 1, 0)), hours=Range(TEN_O_CLOCK, TEN_O_CLOCK + HOUR_US))
    assert lake.version(HOURLY_COUNTS.name) == version


def test_an_answer_that_is_lost_after_the_commit_is_no_failure(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import DataFrameWriter

    save = DataFrameWriter.save

    def save_and_lose_the_answer(self: DataFrameWriter, path: str) -> None:
        save(self, path)
        raise OSError("the connection broke")

    monkeypatch.setattr(DataFrameWriter, "save", save_and_lose_the_answer)
    lake.append_once(HOURLY_COUNTS, counts(spark, ("lost", 1, 1), start_us=hour_of(30)), number=1)
    lake.append_once(HOURLY_COUNTS, counts(spark, ("lost", 1, 1), start_us=hour_of(30)), number=1)
    assert lake.read(HOURLY_COUNTS.name).where("entity_id = 'lost'").count() == 1


def test_rows_that_a_killed_run_left_to_its_jvm_are_not_taken_for_ones_own(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other's commit lands while ours is under way, and ours ends in a conflict."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrameWriter

    hours = Range(hour_of(3), hour_of(4))
    app = f"{app_id(HOURLY_COUNTS.name, lake.known(HOURLY_COUNTS.name).generation)}/replace"
    next_number = (lake_files.marker(lake.path(HOURLY_COUNTS.name), app) or 0) + 1
    writer_type, ours = type(spark.range(1).write), counts(spark, ("ours", 2, 1), start_us=hour_of(3))
    save = writer_type.save

    def save_anothers(_writer: DataFrameWriter, path: str) -> None:
        anothers = counts(spark, ("theirs", 1, 1), start_us=hour_of(3)).select(*HOURLY_COUNTS.names)
        writer = anothers.write.format("delta").mode("overwrite")
        predicate = partition_predicate(HOURLY_COUNTS.partition_by, hours)
        save(
            writer.option("replaceWhere", predicate).option("txnAppId", app).option("txnVersion", next_number),
            path,
        )
        raise PySparkException("Somebody else has committed meanwhile.")

    with monkeypatch.context() as patch:
        patch.setattr(writer_type, "save", save_anothers)
        with pytest.raises(WriteFailedError, match="Somebody else"):
            lake.replace(HOURLY_COUNTS, ours, hours=hours)
    lake.replace(HOURLY_COUNTS, ours, hours=hours)
    entities = lake.read(HOURLY_COUNTS.name).where(partition_predicate(HOURLY_COUNTS.partition_by, hours))
    assert [row.entity_id for row in entities.collect()] == ["ours"]


def test_checksums_depend_on_rows_and_on_nothing_else(lake: Lake, spark: "SparkSession") -> None:
    path = lake.path(HOURLY_COUNTS.name)
    hours = Range(hour_of(40), hour_of(41))

    def put(*rows: tuple[str, int, int], files: int = 1) -> table_checksums.Checksum:
        lake.replace(HOURLY_COUNTS, counts(spark, *rows, start_us=hours.start_us).repartition(files), hours=hours)
        return table_checksums.checksum(path)

    first = put(("a", 1, 1), ("b", 2, 1), ("b", 2, 1))
    assert put(("b", 2, 1), ("a", 1, 1), ("b", 2, 1), files=3) == first
    assert put(("a", 1, 1)).rows == first.rows - 2
    # Two copies do not cancel each other, as they would in an exclusive or.
    assert put(("a", 1, 1), ("b", 2, 1), ("b", 2, 1), ("c", 3, 1), ("c", 3, 1)) != put(
        ("a", 1, 1), ("b", 2, 1), ("b", 2, 1), ("d", 3, 1), ("d", 3, 1)
    )


def test_maintenance_changes_files_and_no_rows(lake: Lake, spark: "SparkSession") -> None:
    before = table_checksums.checksum(lake.path("deltas"))
    version = lake.maintain(TABLES["deltas"], closed_before_us=hour_of(1))
    assert table_checksums.checksum(lake.path("deltas")) == before
    assert lake.known("deltas").version == version
    assert drain(lake).noticed == {}
    assert lake.edits("deltas") == {}


def test_rows_changed_by_others_are_remembered_until_their_partition_is_written_anew(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """Also when a commit of ours came after the change."""
    lake = Lake(Home(tmp_path / "home").create(FORGETFUL), lambda: spark)
    hours = [TEN_O_CLOCK, TEN_O_CLOCK + HOUR_US]
    lake.settle(HOURLY_COUNTS)
    for start in hours:
        lake.replace(HOURLY_COUNTS, counts(spark, ("a", 1, 1), start_us=start), hours=[start])
    table = lake_files.open_table(lake.path(HOURLY_COUNTS.name))
    assert table is not None
    table.update(updates={"count": "count + 1"}, predicate="bucket_hour = '2026-03-02 11:00:00'")
    edited = lake.edits(HOURLY_COUNTS.name)
    assert [(start, edit.operation) for start, edit in edited.items()] == [(hours[1], "UPDATE")]
    lake.replace(HOURLY_COUNTS, counts(spark, ("a", 1, 1), start_us=hours[0]), hours=[hours[0]])
    assert lake.edits(HOURLY_COUNTS.name) == edited
    lake.replace(
        HOURLY_COUNTS, counts(spark, ("a", 1, 1), start_us=hours[1]), hours=Range(hours[1], hours[1] + HOUR_US)
    )
    assert lake.edits(HOURLY_COUNTS.name) == {}


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path: Path, spark: "SparkSession") -> None:
    lake = Lake(Home(tmp_path / "home").create(FORGETFUL), lambda: spark)
    earlier = replace(DELTAS, columns=tuple(each for each in DELTAS.columns if each.name != "removed_bytes"))
    lake.settle(earlier)
    send(lake.home, [signal("a")])
    drain(lake)
    found = lake.read("deltas").select("delta_id", "removed_bytes").collect()
    assert [tuple(row) for row in found] == [(found[0]["delta_id"], None)]
    assert lake.known("deltas").generation == 1, "nothing was taken for somebody else's change"
