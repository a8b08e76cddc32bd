"""Files of `vectors` from files of `deltas`, without Spark: real Delta tables, and every way that a fold may take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException

from assets.vectors import job
from assets.vectors.asset import write_vectors
from assets.vectors.job import pieces_of
from assets.vectors.schema import VECTORS
from resources import lake as lake_module
from resources.lake import Lake, LakeError, WriteFailedError
from tests.support.vector_lake import VectorLake, delta, spread_deltas
from tests.support.vector_oracle import Delta, canonical
from tests.support.vector_rows import expected_rows, run_in_this_process, table_rows_by_name
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.lake_commits import commit_files
from tidemark.vectors import bucket_files
from tidemark.vectors.packed import payload_bytes
from tidemark.vectors.reading.reader import Vectors
from tidemark.vectors.reading.snapshot import FileOf, files_at
from tidemark.vectors.tables import BUCKETS, bucket_of

A_PIECE = 64 << 20


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "run", run_in_this_process)


def made_lake(path: Path) -> tuple[VectorLake, Lake]:
    tables = VectorLake(Home(path).create())
    return tables, Lake(tables.home)


def fold(lake: Lake, covered: dict[int, int] | None) -> None:
    version = lake.version("deltas")
    assert version is not None
    with lake.lock("vectors"):
        write_vectors(lake, version, dict.fromkeys(range(BUCKETS), covered))


@pytest.fixture(params=[(1, 64 << 20), (1, 0), (4, 0)], ids=["whole", "by hour", "in pieces"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket in so many pieces, and so many bytes of deltas at once."""
    pieces, held = request.param
    monkeypatch.setattr(job, "pieces_of", lambda *_: pieces)
    monkeypatch.setattr(bucket_files, "HELD_BYTES", held)


CUTS = given(st.integers(0, 2**32), st.lists(st.integers(1, 39), max_size=2, unique=True))
# What the fixtures set is the same for all examples.
SHARED = [HealthCheck.function_scoped_fixture]


def test_o2_buckets_that_reach_differently_far_are_folded_on_together_and_no_other_is_written(
    way: None, tmp_path: Path
) -> None:
    """One is folded anew, others go on from where each is, and what is not asked for stays as it is, behind."""
    tables, lake = made_lake(tmp_path)
    arrived = spread_deltas(7, 60, "uvwxyz")
    last = arrived[-1]["epoch"]
    first, second, third, *others = sorted({bucket_of(each["namespace"], each["vector_id"]) for each in arrived})

    def drain(after: int, upto: int) -> int:
        tables.send(each for each in arrived if after < each["epoch"] <= upto)
        version = lake.version("deltas")
        assert version is not None
        return version

    def files() -> dict[int, tuple[str, ...]]:
        return {bucket: part.files for bucket, part in lake_files.partitions(lake.path("vectors")).items()}

    write_vectors(lake, drain(0, last // 3), dict.fromkeys(range(BUCKETS)))
    write_vectors(lake, drain(last // 3, 2 * last // 3), {second: {0: last // 3}})
    before = files()
    version = drain(2 * last // 3, last)
    write_vectors(lake, version, {first: {0: last // 3}, second: {0: 2 * last // 3}, third: None})
    assert {bucket for bucket, each in files().items() if each != before.get(bucket)} == {first, second, third}
    expected = expected_rows(tables.deltas)
    for key, row in table_rows_by_name(lake).items():
        if bucket_of(*key) in (first, second, third):
            assert row == expected[key]
    write_vectors(lake, version, {bucket: {0: last // 3} for bucket in others})
    assert table_rows_by_name(lake) == expected


@settings(max_examples=3, suppress_health_check=SHARED)
@CUTS
def test_any_cut_into_runs_leads_to_the_same_table_k1(
    way: None, tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[int]
) -> None:
    """Late deltas, ties, healed parents, several hours, and several buckets: some go on, and some are folded anew."""
    assert_any_cut_is_right(tmp_path_factory.mktemp("home"), seed, cuts)


@pytest.mark.slow  # a second each: real tables, and every commit to them
@settings(max_examples=60, suppress_health_check=SHARED)
@CUTS
def test_very_many_cuts_into_runs_lead_to_the_same_table_k1(
    way: None, tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[int]
) -> None:
    assert_any_cut_is_right(tmp_path_factory.mktemp("home"), seed, cuts)


def assert_any_cut_is_right(path: Path, seed: int, cuts: list[int]) -> None:
    tables, lake = made_lake(path)
    arrived = [each | ({"parent_id": None} if seed % 3 else {}) for each in spread_deltas(seed, 40, "uvwxyz")]
    covered: dict[int, int] | None = None
    # A write is drained whole.
    for upto in sorted({*(arrived[min(cut, len(arrived)) - 1]["epoch"] for cut in cuts), arrived[-1]["epoch"]}):
        tables.send(each for each in arrived if (covered or {0: 0})[0] < each["epoch"] <= upto)
        fold(lake, covered)
        covered = {0: upto}
        assert table_rows_by_name(lake) == expected_rows(tables.deltas)
    before = DeltaTable(lake.path("vectors")).version()
    fold(lake, covered)
    assert DeltaTable(lake.path("vectors")).version() == before, "nothing is new, so nothing is committed"
    fold(lake, None)
    assert table_rows_by_name(lake) == expected_rows(arrived), "from the beginning it is the same (O2)"


@pytest.mark.parametrize("is_touched", [False, True], ids=["nothing is new for it", "one bucket has changed"])
def test_after_a_fold_every_bucket_reaches_as_far_as_what_was_read_k6(tmp_path: Path, is_touched: bool) -> None:
    tables, lake = made_lake(tmp_path)
    tables.send([delta(1, "create", "a", [1.0]), delta(2, "create", "b", [1.0])])
    fold(lake, None)
    tables.send([delta(3, "replace", "a", [2.0])] if is_touched else [])
    fold(lake, {0: 2})
    made = lake.lineage_file("vectors").read().partitions
    version = lake.version("deltas")
    assert {bucket: each.source for bucket, each in made.items()} == dict.fromkeys(range(BUCKETS), version)
    vectors = Vectors(tables.home)
    assert vectors.unfolded("demo", vectors.snapshot, ["a", "b"]) == {}


def test_only_buckets_that_have_new_deltas_get_new_files(tmp_path: Path) -> None:
    tables, lake = made_lake(tmp_path)
    names = "abcdefgh"
    tables.send([delta(number, "create", name, [1.0]) for number, name in enumerate(names, 1)])
    fold(lake, None)
    before = {bucket: part.files for bucket, part in lake_files.partitions(lake.path("vectors")).items()}
    tables.send([delta(9, "scale", "c") | {"factor": 2.0}])
    fold(lake, {0: 8})
    after = {bucket: part.files for bucket, part in lake_files.partitions(lake.path("vectors")).items()}
    assert {bucket for bucket in after if before[bucket] != after[bucket]} == {bucket_of("demo", "c")}
    assert table_rows_by_name(lake) == expected_rows(tables.deltas)


def test_the_log_of_the_table_says_what_a_file_holds(tmp_path: Path) -> None:
    """Rows and bounds; the bounds of a name that is too long to be told whole lie around it."""
    tables, lake = made_lake(tmp_path)
    long = "x" * 40
    tables.send([delta(1, "create", "a", [1.0]), delta(2, "create", long, [1.0])])
    fold(lake, None)
    opened = DeltaTable(lake.path("vectors"))
    actions = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    told = {action["partition.bucket"]: action for action in actions}
    assert {bucket: action["num_records"] for bucket, action in told.items()} == {
        bucket_of("demo", "a"): 1,
        bucket_of("demo", long): 1,
    }
    assert told[bucket_of("demo", "a")]["max.vector_id"] == "a"
    of_long = told[bucket_of("demo", long)]
    assert of_long["min.vector_id"] < long < of_long["max.vector_id"]
    assert set(opened.to_pyarrow_table().column_names) == set(VECTORS.names)
    assert Vectors(tables.home).vector(long, namespace="demo").values is not None


def test_columns_of_a_file_are_those_of_the_table(tmp_path: Path) -> None:
    tables, lake = made_lake(tmp_path)
    tables.send([delta(1, "create", "a", [1.0])])
    fold(lake, None)
    table = DeltaTable(lake.path("vectors")).to_pyarrow_table()
    for column in VECTORS.columns:
        assert table.schema.field(column.name).type == column.type, column.name


@pytest.mark.parametrize("held", [64 << 20, 0], ids=["all at once", "by hour"])
def test_a_fold_anew_begins_at_bases_whose_payloads_are_gone_k5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Whole, and also where one late delta calls for it in a run that otherwise goes on; over several hours."""
    monkeypatch.setattr(bucket_files, "HELD_BYTES", held)
    tables, lake = made_lake(tmp_path)
    arrived = [
        delta(1, "create", "a", [1.0]),
        delta(2, "scale", "a") | {"factor": 3.0, "event_us": HOUR_US},
        delta(5, "replace", "a", [4.0]) | {"event_us": 2 * HOUR_US},
    ]
    tables.send(arrived)
    base = tables.state_after("a", 2, 5)
    assert base is not None
    tables.checkpoint([base], is_base=True, cut_ts=arrived[1]["event_us"] + 1)
    tables.remove_payloads(arrived[:2])
    fold(lake, None)
    assert table_rows_by_name(lake) == expected_rows(arrived)
    late = delta(6, "offset", "a") | {"amount": 0.1, "event_us": arrived[2]["event_us"] - 1}
    tables.send([late])
    fold(lake, {0: 5})
    assert table_rows_by_name(lake) == expected_rows([*arrived, late])


def test_deltas_of_a_shard_that_was_silent_are_new(tmp_path: Path) -> None:
    """Also those of low epochs: what is covered says nothing of that shard."""
    home = Home(tmp_path).create("shards = 2\n")
    tables, lake = VectorLake(home), Lake(home)
    tables.send([delta(9, "create", "a", [1.0])])
    fold(lake, None)
    tables.send([delta(1, "create", "b", [2.0]) | {"shard": 1}])
    fold(lake, {0: 9})
    assert {key[1] for key in table_rows_by_name(lake)} == {"a", "b"}


def test_what_is_covered_counts_for_every_shard_that_it_names(tmp_path: Path) -> None:
    tables, lake = made_lake(tmp_path)
    tables.send([delta(9, "create", "a", [1.0]), delta(1, "create", "b", [2.0]) | {"shard": 1}])
    fold(lake, None)
    tables.send([delta(2, "replace", "b", [3.0]) | {"shard": 1}])
    fold(lake, {0: 9, 1: 1})
    assert table_rows_by_name(lake) == expected_rows(tables.deltas)


def test_a_job_that_fails_says_what_was_wrong_and_that_nothing_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a task of Python, the last line of its trace does."""
    tables, lake = made_lake(tmp_path)
    tables.send([delta(1, "create", "a", [1.0])])

    def fails(*_: Any) -> Any:
        raise PythonException("\n  An exception was thrown.\nTraceback:\n  File x\nDamage: the file is short.\n")

    monkeypatch.setattr(job, "run", fails)
    with pytest.raises(WriteFailedError, match=r"nothing of it was committed: Damage: the file is short\."):
        fold(lake, None)
    assert DeltaTable(lake.path("vectors")).version() == 0


def test_files_without_a_piece_in_their_names_are_read_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance puts files together, and names them as it likes."""
    tables, lake = made_lake(tmp_path)
    arrived = [each | {"parent_id": None} for each in spread_deltas(7, 40, "uvwxyz")]
    last = arrived[-1]["epoch"]
    tables.send([each for each in arrived if each["epoch"] < last])
    tables.fold(has_rows_for_parked=True, is_remembered=False)
    tables.send([each for each in arrived if each["epoch"] == last])
    monkeypatch.setattr(job, "pieces_of", lambda *_: 2)
    fold(lake, {0: last - 1})
    assert table_rows_by_name(lake) == expected_rows(arrived)


def test_rows_that_lie_in_a_wrong_hour_are_an_error_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours are folded one after the other; a row in another hour than its own would come too late."""
    monkeypatch.setattr(bucket_files, "HELD_BYTES", 0)
    tables, lake = made_lake(tmp_path)
    tables.send([delta(1, "create", "a", [1.0]), delta(400, "replace", "a", [2.0])])
    monkeypatch.setattr(job, "files_at", _swapped_hours)
    with pytest.raises(LakeError, match="Deltas of demo/a lie in files of other hours"):
        fold(lake, None)
    assert DeltaTable(lake.path("vectors")).version() == 0


def _swapped_hours(path: Path, version: int | None = None) -> Sequence[FileOf]:
    found = files_at(path, version)
    return [file._replace(partition=-file.partition) for file in found] if path.name == "deltas" else found


def test_files_whose_commit_fails_are_no_part_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, lake = made_lake(tmp_path)
    tables.send([delta(1, "create", "a", [1.0])])

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(lake_module, "commit_files", fails)
        with pytest.raises(WriteFailedError, match="nothing of it was committed: no room"):
            fold(lake, None)
    assert DeltaTable(lake.path("vectors")).version() == 0
    fold(lake, None)
    assert table_rows_by_name(lake) == expected_rows(tables.deltas)


def test_a_commit_whose_answer_is_lost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, lake = made_lake(tmp_path)
    tables.send([delta(1, "create", "a", [1.0])])

    def commits_and_fails(*given: Any, **named: Any) -> None:
        commit_files(*given, **named)
        raise OSError("the answer was lost")

    monkeypatch.setattr(lake_module, "commit_files", commits_and_fails)
    fold(lake, None)
    assert table_rows_by_name(lake) == expected_rows(tables.deltas)
    assert DeltaTable(lake.path("vectors")).version() == 1


@pytest.mark.parametrize(("megabytes", "pieces"), [(0, 1), (63, 1), (64, 2), (127, 2), (128, 4), (1_000, 16)], ids=str)
def test_a_bucket_is_cut_into_pieces_that_fit_into_memory(megabytes: int, pieces: int) -> None:
    size = (megabytes << 20) * BUCKETS
    assert pieces_of(size, 0) == pieces_of(0, size) == pieces
    assert pieces * A_PIECE > size // BUCKETS


def test_only_payloads_of_vectors_count_for_the_size_of_a_fold(tmp_path: Path) -> None:
    tables, lake = made_lake(tmp_path)
    tables.send([delta(1, "create", "a", [float(number) for number in range(5_000)])])
    [file] = files_at(lake.path("deltas"))
    whole = payload_bytes(file.path)
    assert 5_000 < whole < file.bytes
    tables.remove_payloads(tables.deltas)
    [file] = files_at(lake.path("deltas"))
    assert payload_bytes(file.path) < whole // 2


def test_a_late_delta_sorts_between_what_was_folded(tmp_path: Path) -> None:
    tables, lake = made_lake(tmp_path)
    arrived: list[Delta] = [delta(1, "create", "a", [1.0]), delta(8, "offset", "a") | {"amount": 1.0}]
    tables.send(arrived)
    fold(lake, None)
    late = delta(9, "scale", "a") | {"factor": 10.0, "event_us": arrived[1]["event_us"] - 1}
    tables.send([late])
    fold(lake, {0: 8})
    assert canonical(tables.deltas, "a")[1] == late
    assert Vectors(tables.home).vector("a", namespace="demo").values.tolist() == [11.0]  # type: ignore[union-attr]
