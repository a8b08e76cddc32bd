"""When vectors are folded, indexed and compacted (K3, O3, O4); no JVM."""

import shutil
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import pytest

from assets.names import CHECK_NAME, RANGE_END, RANGE_START, more_partitions
from assets.trust import found_wrong
from assets.vectors.new_deltas import bucket_states, covered_epochs
from assets.vectors.schema import VECTOR_CONFLICTS, VECTORS
from orchestration.attempts import MAX_ATTEMPTS, GaveUpError
from orchestration.compact_sensor import compact_when_due
from orchestration.instance import open_instance
from orchestration.sensors import follow_vectors
from orchestration.vectors import due_work
from resources.record import Record
from tests.support.batch import send
from tests.support.live import vector
from tests.support.orchestrator import judge, materialize, record_of, refuse, tell
from tests.support.vector_lake import VectorLake, delta
from tidemark.model.buckets import BUCKET
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile
from tidemark.tables.table_spec import TableSpec, create_table
from tidemark.vectors.tables import BUCKETS, bucket_of

Answer = dg.RunRequest | dg.SkipReason
BUCKET_OF_A, BUCKET_OF_B = (BUCKET.key(bucket_of("demo", name)) for name in "ab")


def sent(home: Home) -> VectorLake:
    """Tables with a vector in `deltas`, of which the log says that it has vectors."""
    send(home, [vector("d1", "create", values=[1.0, 2.0])])
    tables = VectorLake(home)
    tables.send([delta(1, "create", "a", [1.0, 2.0])])
    return tables


def ask(instance: dg.DagsterInstance, sensor: dg.SensorDefinition) -> Answer:
    """What a sensor says that was started long ago."""
    answer = sensor(dg.build_sensor_context(instance, last_sensor_start_time=0.0))
    assert isinstance(answer, Answer)
    return answer


def asked(instance: dg.DagsterInstance, sensor: dg.SensorDefinition) -> dg.RunRequest:
    answer = ask(instance, sensor)
    assert isinstance(answer, dg.RunRequest), answer
    return answer


def why_not(instance: dg.DagsterInstance, sensor: dg.SensorDefinition) -> str:
    answer = ask(instance, sensor)
    assert isinstance(answer, dg.SkipReason), answer
    return str(answer.skip_message)


def told_of_run(instance: dg.DagsterInstance, job: str, request: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
    instance.add_run(dg.DagsterRun(job_name=job, status=status, tags=dict(request.tags)))


def test_the_index_is_due_when_vectors_has_moved_on_unless_it_was_found_wrong(tmp_path: Path) -> None:
    home, instance = Home(tmp_path / "home").create(), dg.DagsterInstance.ephemeral()
    assert due_work(instance, home).tables == (), "nothing was ever folded"
    tables = VectorLake(home)
    tables.send([delta(1, "create", "a", [1.0, 2.0])])
    tables.fold()
    assert due_work(instance, home) == (("vector_index",), ())
    refuse(instance, "vectors", BUCKET_OF_A, "Nothing is recorded of it.")
    assert due_work(instance, home).tables == ()
    materialize(instance, "vectors", [BUCKET_OF_A])
    judge(instance, "vectors", [BUCKET_OF_A])
    assert due_work(instance, home) == (("vector_index",), ())


def test_o4_a_bucket_that_was_written_and_not_found_right_is_due_until_it_is(home: Home) -> None:
    tables = sent(home)
    tables.fold()
    due = (("vectors", "vector_index"), (BUCKET_OF_A,))
    with (
        open_instance(home) as instance,
        patch("orchestration.vectors.due_buckets", lambda *_: []),
    ):
        assert "vectors" not in due_work(instance, home).tables, "nothing was ever written"
        materialize(instance, "vectors", [BUCKET_OF_A, BUCKET_OF_B])
        judge(instance, "vectors", [BUCKET_OF_B])
        assert due_work(instance, home) == due, "its check never ran"
        judge(instance, "vectors", [BUCKET_OF_A], passed=False)
        assert due_work(instance, home) == due, "it was found wrong, and no other"
        assert found_wrong(home, instance, "vectors") == {BUCKET_OF_A}
        judge(instance, "vectors", [BUCKET_OF_A])
        assert "vectors" not in due_work(instance, home).tables


def test_o3_exactly_the_buckets_with_new_deltas_are_asked_for_in_one_run(home: Home) -> None:
    tables = sent(home)
    tables.send([delta(2, "create", "b", [1.0])])
    tables.fold()
    create_table(home.lake / "vector_conflicts", VECTOR_CONFLICTS)
    KnownTableFile(home.plans, "vector_conflicts").record_commit(home.lake / "vector_conflicts")
    with open_instance(home) as instance:
        # A home of before: what it has recorded names no bucket. All that have vectors are folded again, once.
        found_right(instance, home, None)
        everything = due_work(instance, home)
        assert everything.tables == ("vectors", "vector_conflicts", "vector_index")
        assert set(everything.buckets) == {BUCKET_OF_A, BUCKET_OF_B}
        for key in everything.buckets:
            found_right(instance, home, key)
        assert due_work(instance, home) == (("vector_index",), ())

        # Commits without deltas of a bucket make it due no more than none at all, and neither do those of others.
        tables.send([delta(3, "replace", "a", [2.0])])
        assert due_work(instance, home).buckets == (BUCKET_OF_A,)
        request = asked(instance, follow_vectors)
        assert {request.tags[RANGE_START], request.tags[RANGE_END]} == {BUCKET_OF_A}
        assert {key.to_user_string() for key in request.asset_selection or ()} == set(everything.tables)
        tables.send([delta(4, "replace", "b", [2.0])])
        both = asked(instance, follow_vectors)
        own = {both.tags[RANGE_START], both.tags[RANGE_END], *more_partitions(both.tags)}
        assert own == {BUCKET_OF_A, BUCKET_OF_B}, "in one run, although they are not neighbours"

        # Committed, and killed before the record: it is reported by the next run, from where the last record stands.
        for key in everything.buckets:
            found_right(instance, home, key)
        assert due_work(instance, home).buckets == ()
        tables.fold()
        assert set(due_work(instance, home).buckets) == {BUCKET_OF_A, BUCKET_OF_B}


def test_o5_a_row_that_somebody_else_has_changed_makes_its_bucket_due_and_blocks_the_index(home: Home) -> None:
    tables = sent(home)
    tables.send([delta(2, "create", "b", [1.0])])
    tables.fold()
    with open_instance(home) as instance:
        for key in (BUCKET_OF_A, BUCKET_OF_B):
            found_right(instance, home, key, tables=(VECTORS,))
        found = lake_files.open_table(home.lake / "vectors")
        assert found is not None
        found.update(updates={"deltas": "deltas + 1"}, predicate="vector_id = 'b'")
        assert found_wrong(home, instance, "vectors") == {BUCKET_OF_B}
        records = Record.latest_by_partition(instance, "vectors")
        states = bucket_states(home, VECTORS, records, records[BUCKET_OF_A].input_versions["deltas"])
        due = [bucket for bucket, state in states.items() if state.is_due]
        assert due == [BUCKET.start(BUCKET_OF_B)]
        covered = covered_epochs(home, states, range(BUCKETS))
        assert covered[due[0]] is None, "it is folded from the first delta"
        assert covered[BUCKET.start(BUCKET_OF_A)] == {0: 2}, "and the one beside it goes on"


def found_right(
    instance: dg.DagsterInstance,
    home: Home,
    key: str | None,
    tables: tuple[TableSpec, ...] = (VECTORS, VECTOR_CONFLICTS),
) -> None:
    """What a run records of a bucket that holds all that `deltas` has, and that it was found right."""
    deltas = lake_files.table_state(home.lake / "deltas")
    assert deltas is not None
    for spec in tables:
        known = KnownTableFile(home.plans, spec.name).record_commit(home.lake / spec.name)
        record = Record(
            asset=spec.name,
            partition=key,
            generation=known.generation,
            table_version=known.version,
            table_id=known.table_id,
            input_versions={"deltas": deltas.version},
            input_generations={"deltas": 1},
        )
        tell(instance, record)
        if key is not None:
            judge(instance, spec.name, [key])


def test_o3_vectors_are_folded_one_run_at_a_time_for_as_long_as_something_is_not(home: Home) -> None:
    with open_instance(home) as instance:
        assert why_not(instance, follow_vectors) == "Every vector delta is folded."
        tables = sent(home)
        first = asked(instance, follow_vectors)
        assert asked(instance, follow_vectors) == first, "two ticks ask for the same run, which is started once"
        told_of_run(instance, "vectors_job", first, dg.DagsterRunStatus.STARTED)
        assert why_not(instance, follow_vectors) == "A fold is under way."
    shutil.rmtree(home.dagster)
    with open_instance(home) as instance:
        # What a run may leave: a table that was committed, of which nobody has a record.
        tables.fold()
        again = asked(instance, follow_vectors)
        assert again.run_key != first.run_key, "or the orchestrator would take it for the run that was"
        shutil.rmtree(home.lake / "vectors")
        assert len({asked(instance, follow_vectors).run_key, again.run_key, first.run_key}) == 3


def test_a_fold_that_fails_is_tried_again_until_somebody_has_to_look(home: Home) -> None:
    tables = sent(home)
    with open_instance(home) as instance:
        keys = set()
        for _ in range(MAX_ATTEMPTS):
            request = asked(instance, follow_vectors)
            keys.add(request.run_key)
            told_of_run(instance, "vectors_job", request, dg.DagsterRunStatus.FAILURE)
        assert len(keys) == MAX_ATTEMPTS
        with pytest.raises(GaveUpError, match=r"could not be folded in 5 attempts\. .*start vectors_job by hand"):
            ask(instance, follow_vectors)
        tables.send([delta(2, "replace", "a", [3.0, 4.0])])
        asked(instance, follow_vectors)


def test_o4_nothing_is_folded_or_compacted_from_deltas_that_were_found_wrong(home: Home) -> None:
    tables = sent(home)
    tables.fold()
    with open_instance(home) as instance:
        asked(instance, follow_vectors)
        hour = "1970-01-01-00:00"
        tell(instance, record_of("deltas", hour))
        wrong = dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey("deltas"), check_name=CHECK_NAME, passed=False, partition=hour
        )
        instance.report_runless_asset_event(wrong)
        for sensor in (follow_vectors, compact_when_due):
            assert why_not(instance, sensor) == f"Waits until deltas passes its checks again: {hour}."


def test_k3_vectors_are_compacted_when_they_are_due_and_not_again_for_nothing(home: Home) -> None:
    with open_instance(home) as instance:
        assert why_not(instance, compact_when_due) == "There are no vectors."
        tables = sent(home)
        tables.send([delta(epoch, "replace", "a", [float(epoch)]) for epoch in range(2, 9)])
        tables.fold()
        assert why_not(instance, compact_when_due) == "No vector is due.", "as many stay single"
        tables.send([delta(epoch, "replace", "a", [float(epoch)]) for epoch in range(9, 19)])
        tables.fold()
        first = asked(instance, compact_when_due)
        told_of_run(instance, "compaction_job", first, dg.DagsterRunStatus.STARTED)
        assert why_not(instance, compact_when_due) == "A compaction is under way."
    shutil.rmtree(home.dagster)
    with open_instance(home) as instance:
        told_of_run(instance, "compaction_job", first, dg.DagsterRunStatus.SUCCESS)
        assert asked(instance, compact_when_due).run_key == first.run_key, "which the orchestrator starts once"
        for _ in range(MAX_ATTEMPTS):
            told_of_run(instance, "compaction_job", asked(instance, compact_when_due), dg.DagsterRunStatus.FAILURE)
        with pytest.raises(GaveUpError, match="of 1 vectors could not be compacted"):
            ask(instance, compact_when_due)
        state = tables.state_after("a", 8, 18)
        assert state is not None
        tables.checkpoint([state])
        assert why_not(instance, compact_when_due) == "No vector is due."
