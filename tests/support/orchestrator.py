"""Small builders for tests of what the orchestrator remembers: materializations and verdicts, without a run."""

import sqlite3
import uuid
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

import dagster as dg

from assets.names import CHECK_NAME
from assets.rollups.schema import CHAIN
from orchestration.instance import EVENTS_FILE
from resources.dagster_internals import AssetCheckEvaluationTargetMaterializationData
from resources.record import Record
from tidemark.storage.home import Home

# The name of each rollup's input.
INPUTS = {target.name: source.name for source, target in CHAIN}


def materialize(instance: dg.DagsterInstance, table: str, partitions: Iterable[str]) -> None:
    for partition in partitions:
        instance.report_runless_asset_event(dg.AssetMaterialization(dg.AssetKey(table), partition=partition))


def judge(
    instance: dg.DagsterInstance, table: str, partitions: Iterable[str], *, passed: bool = True, message: str = ""
) -> None:
    """A verdict on the last materialization of each partition."""
    key = dg.AssetKey(table)
    ids = instance.event_log_storage.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION)
    for partition in partitions:
        judge_as_of(instance, table, partition, ids[partition], passed=passed, message=message)


def tell(instance: dg.DagsterInstance, record: Record) -> None:
    """A materialization with its record."""
    instance.report_runless_asset_event(
        dg.AssetMaterialization(record.asset, partition=record.partition, metadata=record.to_metadata())
    )


def record_of(
    asset: str, partition: str | None, version: int = 1, made_from: Mapping[str, int] | None = None, **more: Any
) -> Record:
    """A record of a table's first generation, made from these versions of other tables."""
    inputs = dict(made_from or {})
    return Record(
        asset=asset,
        partition=partition,
        generation=1,
        table_version=version,
        table_id=asset,
        input_versions=inputs,
        input_generations=dict.fromkeys(inputs, 1),
        **more,
    )


def judge_as_of(
    instance: dg.DagsterInstance, table: str, partition: str | None, number: int, *, passed: bool, message: str = ""
) -> None:
    """A verdict on the materialization with that number, whatever came after it."""
    target = AssetCheckEvaluationTargetMaterializationData(storage_id=number, run_id="", timestamp=0.0)
    _evaluate(instance, table, partition, passed, message, target)


def refuse(instance: dg.DagsterInstance, table: str, partition: str, message: str) -> None:
    """A verdict on a partition of which nothing is recorded: it names no materialization."""
    _evaluate(instance, table, partition, False, message, None)


def _evaluate(
    instance: dg.DagsterInstance,
    table: str,
    partition: str | None,
    passed: bool,
    message: str,
    target: AssetCheckEvaluationTargetMaterializationData | None,
) -> None:
    """Under a run's id of its own: without one, the storage takes a single verdict on a partition, for ever."""
    evaluation = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(table),
        check_name=CHECK_NAME,
        passed=passed,
        description=message,
        partition=partition,
        target_materialization_data=target,
    )
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
    instance.report_dagster_event(
        dg.DagsterEvent(event_type_value=kind, event_specific_data=evaluation, job_name="tests"),
        run_id=str(uuid.uuid4()),
    )


def copy_to(home: Home, table: str, partition: str, others: Iterable[str]) -> None:
    """What is stored of one partition, once more for each of the others: a year by its events would take minutes."""
    with closing(sqlite3.connect(home.dagster / EVENTS_FILE)) as index, index:
        [verdict] = _rows(index, "asset_check_executions", asset_key=f'["{table}"]', partition=partition)
        [materialized] = _rows(index, "event_logs", id=verdict["materialization_event_storage_id"])
        [judged] = _rows(index, "event_logs", id=verdict["evaluation_event_storage_id"])
        for other in others:
            bodies = [event["event"].replace(partition, other) for event in (materialized, judged)]
            ids = {
                "materialization_event_storage_id": _copy(
                    index, "event_logs", materialized, partition=other, event=bodies[0]
                ),
                "evaluation_event_storage_id": _copy(index, "event_logs", judged, event=bodies[1]),
            }
            _copy(index, "asset_check_executions", verdict, partition=other, **ids)


def _rows(index: sqlite3.Connection, name: str, **chosen: object) -> list[dict[str, Any]]:
    condition = " AND ".join(f"{column} = :{column}" for column in chosen)
    found = index.execute(f"SELECT * FROM {name} WHERE {condition}", chosen)
    columns = [column[0] for column in found.description]
    return [dict(zip(columns, row, strict=True)) for row in found]


def _copy(index: sqlite3.Connection, name: str, row: dict[str, Any], **changes: object) -> int | None:
    changed = {**row, **changes, "id": None}
    places = ", ".join(f":{column}" for column in changed)
    return index.execute(f"INSERT INTO {name} ({', '.join(changed)}) VALUES ({places})", changed).lastrowid
