"""When vectors are folded, indexed and compacted (K3, O3, O4); no JVM."""

import shutil
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import pytest

from assets.names import CHECK_NAME
from orchestration.attempts import MAX_ATTEMPTS, GaveUpError
from orchestration.compact_sensor import compact_when_due
from orchestration.sensors import follow_vectors
from orchestration.vectors import due_tables
from resources.dagster_internals import AssetCheckEvaluationTargetMaterializationData
from resources.record import Record
from tests.support.batch import send
from tests.support.live import vector
from tests.support.vector_lake import VectorLake, delta
from tidemark.storage.home import HOME_VARIABLE, Home

Answer = dg.RunRequest | dg.SkipReason


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    found = Home(tmp_path / "home").create()
    monkeypatch.setenv(HOME_VARIABLE, str(found.root))
    return found


def judged(
    *, passed: bool, made: AssetCheckEvaluationTargetMaterializationData | None = None
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey("vectors"), check_name=CHECK_NAME, passed=passed, target_materialization_data=made
    )


def sent(home: Home) -> VectorLake:
    """Tables with a vector in `deltas`, of which the log says that it has vectors."""
    send(home, [vector("d1", "create", values=[1.0, 2.0])])
    tables = VectorLake(home)
    tables.send([delta(1, "create", "a", [1.0, 2.0])])
    return tables


def ask(instance: dg.DagsterInstance, sensor: dg.SensorDefinition) -> Answer:
    answer = sensor(dg.build_sensor_context(instance))
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
    assert due_tables(instance, home) == [], "nothing was ever folded"
    tables = VectorLake(home)
    tables.send([delta(1, "create", "a", [1.0, 2.0])])
    tables.fold()
    assert due_tables(instance, home) == ["vector_index"]
    instance.report_runless_asset_event(judged(passed=False))
    assert due_tables(instance, home) == []
    instance.report_runless_asset_event(judged(passed=True))
    assert due_tables(instance, home) == ["vector_index"]


def test_o4_a_table_that_was_written_and_not_found_right_is_due_until_it_is(home: Home) -> None:
    tables = sent(home)
    tables.fold()
    with dg.DagsterInstance.ephemeral() as instance:
        record = Record(asset="vectors", partition=None, generation=99, table_version=1, table_id="")

        def write() -> AssetCheckEvaluationTargetMaterializationData:
            instance.report_runless_asset_event(dg.AssetMaterialization("vectors", metadata=record.to_metadata()))
            made = instance.fetch_materializations(dg.AssetKey("vectors"), limit=1).records[0]
            return AssetCheckEvaluationTargetMaterializationData(
                storage_id=made.storage_id, run_id=made.run_id, timestamp=made.timestamp
            )

        def judge(made: AssetCheckEvaluationTargetMaterializationData, *, passed: bool) -> None:
            instance.report_runless_asset_event(judged(passed=passed, made=made))

        with patch("orchestration.vectors.has_new_deltas", lambda *_: False):
            assert "vectors" not in due_tables(instance, home), "nothing was ever written"
            first = write()
            assert "vectors" in due_tables(instance, home), "its check never ran"
            judge(first, passed=False)
            assert "vectors" in due_tables(instance, home), "it was found wrong"
            judge(first, passed=True)
            assert "vectors" not in due_tables(instance, home)


def test_o3_vectors_are_folded_one_run_at_a_time_for_as_long_as_something_is_not(home: Home) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert why_not(instance, follow_vectors) == "Every vector delta is folded."
        tables = sent(home)
        first = asked(instance, follow_vectors)
        assert asked(instance, follow_vectors) == first, "two ticks ask for the same run, which is started once"
        told_of_run(instance, "vectors_job", first, dg.DagsterRunStatus.STARTED)
        assert why_not(instance, follow_vectors) == "A fold is under way."
    with dg.DagsterInstance.ephemeral() as instance:
        # What a run may leave: a table that was committed, of which nobody has a record.
        tables.fold()
        again = asked(instance, follow_vectors)
        assert again.run_key != first.run_key, "or the orchestrator would take it for the run that was"
        shutil.rmtree(home.lake / "vectors")
        assert len({asked(instance, follow_vectors).run_key, again.run_key, first.run_key}) == 3


def test_a_fold_that_fails_is_tried_again_until_somebody_has_to_look(home: Home) -> None:
    tables = sent(home)
    with dg.DagsterInstance.ephemeral() as instance:
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
    with dg.DagsterInstance.ephemeral() as instance:
        asked(instance, follow_vectors)
        hour = "1970-01-01-00:00"
        record = Record(asset="deltas", partition=hour, generation=1, table_version=1, table_id="")
        made = dg.AssetMaterialization("deltas", partition=hour, metadata=record.to_metadata())
        instance.report_runless_asset_event(made)
        wrong = dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey("deltas"), check_name=CHECK_NAME, passed=False, partition=hour
        )
        instance.report_runless_asset_event(wrong)
        for sensor in (follow_vectors, compact_when_due):
            assert why_not(instance, sensor) == f"Waits until what was found wrong in deltas is repaired: {hour}."


def test_k3_vectors_are_compacted_when_they_are_due_and_not_again_for_nothing(home: Home) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
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
    with dg.DagsterInstance.ephemeral() as instance:
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
