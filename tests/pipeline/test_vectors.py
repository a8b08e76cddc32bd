"""Vectors on a real home: drained twice, folded on, checked, tampered with and healed (D3, D8, K1, O2, O4, O5)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assets.vectors.index_schema import VECTOR_INDEX
from assets.vectors.schema import VECTOR_CONFLICTS, VECTORS
from orchestration.instance import open_instance
from orchestration.materialize import drain, materialize_hours
from orchestration.runs import RunResults, run
from orchestration.vectors import due_work, materialize_vectors
from resources.lake import Lake
from resources.record import Record
from tests.support.batch import FORGETFUL, checksums, rows_of, send
from tests.support.live import TEN_O_CLOCK, HandClock, hour_of, signal, vector
from tidemark.model.buckets import BUCKET, bucket_keys
from tidemark.model.timegrid import SECOND_US, hour_key
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.vectors.tables import BUCKETS, bucket_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = (VECTORS.name, VECTOR_CONFLICTS.name)
BUCKET_OF = {name: BUCKET.key(bucket_of("shop", name)) for name in ("alone", "bare", "v1", "waits")}


def files_of(home: Home) -> dict[int, tuple[str, ...]]:
    return {bucket: part.files for bucket, part in lake_files.partitions(home.lake / VECTORS.name).items()}


def at(seconds: float) -> int:
    return TEN_O_CLOCK + round(seconds * SECOND_US)


def drained(home: Home, *deltas: dict[str, Any], minutes: int) -> RunResults:
    """What a drain and the fold after it did; all of it is found right."""
    send(home, deltas, clock=HandClock(at(60 * minutes)))
    drain(home)
    outcome = materialize_vectors(home)
    assert outcome.succeeded, outcome
    return outcome


@pytest.fixture
def home(tmp_path: Path, spark: "SparkSession") -> Home:
    return Home(tmp_path / "home").create(FORGETFUL)


@pytest.mark.slow  # five folds, each with its suites
def test_vectors_follow_the_drain_and_a_wrong_row_is_found_and_healed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A home without vectors has nothing to do.
    assert drained(home, signal("s"), minutes=1).runs == ()
    assert not (home.lake / VECTORS.name).exists()

    first = drained(
        home,
        vector("a", "create", at=at(0), values=[1.0, 2.0], clock={"p": 1}),
        vector("b", "add_dims", at=at(5), indices=[0], values=[0.1], clock={"q": 1}),
        vector("c", "create", at=at(0), vector_id="alone", values=[3.0]),
        vector("d", "scale", at=at(2), vector_id="waits", factor=2.0, parent_id="later"),
        vector("e", "offset", at=at(1), vector_id="bare", amount=1.0),
        minutes=2,
    )
    assert {check.asset: check.passed for check in first.checks} == dict.fromkeys((*TABLES, VECTOR_INDEX.name), True)
    columns = ("vector_id", "values", "deltas", "no_base", "parked")
    assert rows_of(home, VECTORS.name, *columns) == [
        ("alone", [3.0], 1, 0, 0),
        ("bare", None, 1, 1, 0),
        ("v1", [pytest.approx(1.1), 2.0], 2, 0, 0),
        ("waits", None, 0, 0, 1),
    ]
    kinds = ("kind", "earlier_delta_id", "later_delta_id")
    assert rows_of(home, VECTOR_CONFLICTS.name, *kinds) == [("concurrent", "a", "b")]

    # One goes on from its row, one is late below it, one gets its parent, one its base; one is not touched.
    drained(
        home,
        signal("t"),
        vector("f", "scale", at=at(8), vector_id="alone", factor=2.0),
        vector("g", "set_dims", at=at(3), indices=[1], values=[5.0]),
        vector("later", "create", at=at(4), vector_id="waits", values=[7.0]),
        vector("h", "create", at=at(0), vector_id="bare", values=[0.5]),
        minutes=3,
    )
    expected = [
        ("alone", [6.0], 2, 0, 0),
        ("bare", [1.5], 2, 0, 0),
        ("v1", [pytest.approx(1.1), 5.0], 3, 0, 0),
        ("waits", [14.0], 2, 0, 0),
    ]
    assert rows_of(home, VECTORS.name, *columns) == expected
    with open_instance(home) as instance:
        records = Record.latest_by_partition(instance, VECTORS.name)
        assert due_work(instance, home) == ((), ())
    assert records.keys() == {BUCKET_OF[name] for name in ("alone", "bare", "v1", "waits")}
    counted = [(record.rows_in, record.rows_out) for record in records.values()]
    assert [sum(each) for each in zip(*counted, strict=True)] == [9, 4]
    epochs = [record.epochs[0] for record in records.values()]
    assert (min(first for first, _ in epochs), max(end for _, end in epochs)) == (2, 4)
    for record in records.values():
        assert (record.durable, record.held_by) == ({0: 3}, "shard 0, shop/vector")
    assert materialize_vectors(home).runs == ()

    # Stopped when rows are committed and nobody has recorded it: what follows neither loses nor repeats a delta.
    def stop(step: str) -> None:
        if step == "rollup.committed":
            raise RuntimeError("stopped here")

    send(home, [vector("i", "offset", at=at(9), vector_id="alone", amount=0.5)], clock=HandClock(at(200)))
    drain(home)
    with monkeypatch.context() as patch:
        patch.setattr("assets.vectors.asset.failpoint", stop)
        assert not materialize_vectors(home).succeeded
    expected[0] = ("alone", [6.5], 3, 0, 0)
    assert rows_of(home, VECTORS.name, *columns) == expected
    files = files_of(home)
    again = materialize_vectors(home)
    assert again.succeeded
    assert rows_of(home, VECTORS.name, *columns) == expected
    assert_is_of_one_bucket(home, again, "alone", records, files)
    right = checksums(home, *TABLES)

    # Somebody else writes: the next drain finds it, says which row, and the next fold heals it (O5).
    lake_files.open_table(home.lake / VECTORS.name).update(  # type: ignore[union-attr]
        updates={"deltas": "deltas + 1"}, predicate="vector_id = 'alone'"
    )
    found = [check for check in drain(home).checks if check.asset == VECTORS.name]
    assert [(check.passed, check.partition) for check in found] == [(False, BUCKET_OF["alone"])]
    for said in ("every_delta_is_somewhere", "sample_equals_its_deltas", "nobody_else_wrote_here", '"alone"'):
        assert said in found[0].message
    healed = materialize_vectors(home)
    assert healed.succeeded
    assert healed.partitions[VECTORS.name] == (BUCKET_OF["alone"],), "and no other is folded"
    assert checksums(home, *TABLES) == right

    # Hours that were written again make everything be folded again, and that gives the same rows (O2).
    materialize_hours(home, ["deltas"], [hour_key(hour_of(0))])
    assert materialize_vectors(home).succeeded
    assert checksums(home, *TABLES) == right

    # So does a backfill of all buckets, those too that have no vector.
    assert_every_bucket_is_made_in_one_run(home)
    assert checksums(home, *TABLES) == right


def assert_is_of_one_bucket(
    home: Home, outcome: RunResults, name: str, before: dict[str, Record], files: dict[int, tuple[str, ...]]
) -> None:
    """One vector has changed: its bucket has a record and a verdict more, and the others are as they were."""
    key = BUCKET_OF[name]
    assert outcome.partitions == {VECTOR_INDEX.name: (), **dict.fromkeys(TABLES, (key,))}
    judged = sorted((check.asset, str(check.partition)) for check in outcome.checks)
    assert judged == sorted([(VECTOR_INDEX.name, "None"), *((table, key) for table in TABLES)])
    with open_instance(home) as instance:
        now = Record.latest_by_partition(instance, VECTORS.name)
    assert {each for each, record in now.items() if record != before[each]} == {key}
    assert now[key].durable == {0: 4}
    assert {bucket for bucket, each in files_of(home).items() if each != files[bucket]} <= {bucket_of("shop", name)}


def assert_every_bucket_is_made_in_one_run(home: Home) -> None:
    """Each with a verdict of its own."""
    keys = tuple(bucket_keys(BUCKETS))
    with open_instance(home) as instance:
        outcome = RunResults((run(home, instance, TABLES, keys, None),))
    assert outcome.succeeded
    assert outcome.partitions == dict.fromkeys(TABLES, keys)
    judged = sorted((check.asset, str(check.partition)) for check in outcome.checks)
    assert judged == sorted((table, key) for table in TABLES for key in keys)


def test_buckets_are_replaced_and_maintained_one_by_one(home: Home, spark: "SparkSession") -> None:
    lake = Lake(home, lambda: spark)
    lake.settle(VECTOR_CONFLICTS)

    def rows(*buckets: int, kind: str) -> Any:
        columns = (f"CAST(NULL AS {c.sql}) AS {c.name}" for c in VECTOR_CONFLICTS.columns if c.name != "bucket")
        made = spark.createDataFrame([(b,) for b in buckets], "bucket int").selectExpr(*columns, "bucket")
        return made.selectExpr(
            *("'n' AS namespace", "'v' AS vector_id", f"'{kind}' AS kind"),
            *(name for name in VECTOR_CONFLICTS.names if name not in ("namespace", "vector_id", "kind")),
        )

    lake.replace(VECTOR_CONFLICTS, rows(0, 3, 11, kind="old"), hours=None)
    lake.replace(VECTOR_CONFLICTS, rows(3, kind="new"), hours=[3, 11])
    assert rows_of(home, VECTOR_CONFLICTS.name, "bucket", "kind") == [(0, "old"), (3, "new")]
    assert {start: part.rows for start, part in lake_files.partitions(lake.path(VECTOR_CONFLICTS.name)).items()} == {
        0: 1,
        3: 1,
    }
    changed = lake.lineage_file(VECTOR_CONFLICTS.name).read().partitions
    assert {bucket: made.changed for bucket, made in changed.items()} == {0: 1, 3: 2, 11: 2}
    before = checksums(home, VECTOR_CONFLICTS.name)
    lake.maintain(VECTOR_CONFLICTS, closed_before_us=0)
    assert checksums(home, VECTOR_CONFLICTS.name) == before
    table = lake_files.open_table(lake.path(VECTOR_CONFLICTS.name))
    assert table is not None
    table.delete("bucket = 3")
    assert list(lake.edits(VECTOR_CONFLICTS.name)) == [3]
    lake.replace(VECTOR_CONFLICTS, rows(3, kind="again"), hours=[3])
    assert lake.edits(VECTOR_CONFLICTS.name) == {}
