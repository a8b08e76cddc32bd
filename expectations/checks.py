"""How a suite becomes a blocking asset check, correct for one partition and for a range of them.

Belongs here: which partitions are checked, and reporting the result of each one to the orchestrator. Does not belong
here: evaluating suites (`runner.py`), the checked rows (`evidence.py`) and the results (`results.py`).

In a range run, Dagster stores a check's result without a partition, which leaves every partition of the range "skipped"
and its downstream unreleased. So each partition gets its own evaluation, which names the materialization that it is
about and so counts as current.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation

from assets.names import CHECK_NAME, more_partitions
from assets.tables import GRAPH, TABLES
from assets.trust import edited, failed, unchecked
from expectations.evidence import Recorded, gather
from expectations.results import CheckResult, count_of, examples_of, name_of, sentence_of
from expectations.runner import run_suite
from expectations.suite import Suite
from expectations.templates import suite_of
from resources.dagster_internals import AssetCheckEvaluationTargetMaterializationData
from resources.lake import Lake
from resources.platform import TidemarkResource
from resources.record import Record, RecordError
from tidemark.counts.retention import settled_before
from tidemark.model.timegrid import MINUTE, WHOLE
from tidemark.tables.check_notes import WHOLE as WHOLE_TABLE
from tidemark.tables.check_notes import note_checks
from tidemark.tables.known_table import Edit

# This many partitions' materializations are read with one query to the orchestrator's storage.
ASKED_TOGETHER = 200


# The message for a partition whose input is gone, so that there is nothing left to compare it with (R5).
SETTLED = "Settled: it passed its check before what it is made of was dropped, and has not been changed since."
SETTLED_AND_EDITED = (
    "Somebody else has changed the partition, and what it is made of was dropped. Restore the table from a backup; "
    "until then counts are taken from deltas."
)


@dataclass(frozen=True)
class Target:
    """A partition's last materialization, as the orchestrator stored it, and what it recorded."""

    data: AssetCheckEvaluationTargetMaterializationData
    recorded: Recorded


def suite_check(asset: dg.AssetsDefinition) -> dg.AssetChecksDefinition:
    """The check that runs a table's suite after the table's materialization, in a step of its own."""
    suite = suite_of(asset.key.to_user_string())

    @dg.asset_check(
        asset=asset,
        name=CHECK_NAME,
        blocking=True,
        description=describe(suite),
        partitions_def=asset.partitions_def,
        compute_kind="greatexpectations",
    )
    # Evaluations, not a result: the decorator's type does not know that a check may have a result per partition.
    def check(context: dg.AssetCheckExecutionContext, tidemark: TidemarkResource) -> Any:
        instance = context.op_execution_context.instance
        keys = _asked(context, suite.table) if asset.partitions_def else [None]
        if suite.table in GRAPH and GRAPH[suite.table].is_carried:
            # A carry-over may have led the run beyond its requested hours.
            keys += sorted(unchecked(instance, suite.table).difference(key for key in keys if key))
        for evaluation in evaluate(instance, tidemark.lake, suite, keys):
            if not evaluation.passed:
                context.log.error("%s %s: %s", suite.table, evaluation.partition, evaluation.description)
            yield evaluation
        yield dg.Output(None)

    return check


def _asked(context: dg.AssetCheckExecutionContext, table: str) -> list[str | None]:
    """The partitions of a run of the check. "Execute all" names none, and means all that were ever materialized."""
    run = context.op_execution_context
    if run.has_partition_key or run.has_partition_key_range:
        return [*run.partition_keys, *more_partitions(context.run.tags)]
    return [*sorted(run.instance.get_materialized_partitions(dg.AssetKey(table)))]


def check_drained(context: dg.AssetExecutionContext, lake: Lake, reported: Mapping[str, Sequence[str]]) -> None:
    """Check the hours that a drain has just reported, and all others whose current rows have not passed a check.

    Those are the partitions that a crash left without a check, those that failed before (or a later drain would look
    as if all were well), and those in which another process has changed rows. A bad hour does not fail the drain: its
    rows are committed, its result stops the tables downstream, and the other hours go on.
    """
    for table in TABLES:
        wanted: set[str] = set(edited(lake, table))
        if table in reported:
            wanted |= {*reported[table], *unchecked(context.instance, table), *failed(context.instance, table)}
        keys = [None] if wanted and TABLES[table].is_whole else sorted(wanted)
        if keys:
            check_partitions(context, lake, table, keys)


def check_partitions(
    context: dg.AssetExecutionContext, lake: Lake, table: str, partitions: Sequence[str | None]
) -> None:
    """Check partitions of a table in the step of another asset, and report the result of each."""
    for evaluation in evaluate(context.instance, lake, suite_of(table), partitions):
        context.log_event(evaluation)
        if not evaluation.passed:
            context.log.error("%s %s: %s", table, evaluation.partition, evaluation.description)


def evaluate(
    instance: dg.DagsterInstance, lake: Lake, suite: Suite, partitions: Sequence[str | None]
) -> Iterator[AssetCheckEvaluation]:
    """Each partition's own result, as the orchestrator stores it; None stands for a table without partitions."""
    noted: dict[str, str | None] = {}
    for evaluation in _evaluations(instance, lake, suite, partitions):
        noted[evaluation.partition or WHOLE_TABLE] = None if evaluation.passed else evaluation.description
        yield evaluation
    note_checks(lake.home, suite.table, noted, lake.clock())


def _evaluations(
    instance: dg.DagsterInstance, lake: Lake, suite: Suite, partitions: Sequence[str | None]
) -> Iterator[AssetCheckEvaluation]:
    targets: list[Target] = []
    edits, made = edited(lake, suite.table), last_materializations(instance, suite.table, partitions)
    settled_us = settled_before(lake.home, suite.table)
    for partition in partitions:
        try:
            target = _target(suite.table, partition, made.get(partition, ()), edits)
            if partition and settled_us is not None and TABLES[suite.table].grain.start(partition) < settled_us:
                yield _settled(suite, target)
            else:
                targets.append(target)
        except RecordError as error:
            yield _stored(suite, partition, str(error))
    by_moment = sorted(targets, key=lambda target: target.recorded.moment)
    for _, group in groupby(by_moment, key=lambda target: target.recorded.moment):
        together = list(group)
        started = time.monotonic()
        evidence = gather(lake, suite, [target.recorded for target in together])
        keys = [target.recorded.partition for target in together]
        results = run_suite(suite, evidence.batch, partitions=keys, views=evidence.views)
        seconds = time.monotonic() - started
        for target, result in zip(together, results, strict=True):
            yield _evaluation(suite, result, target, seconds, len(together))


def describe(suite: Suite) -> str:
    """What the check proves, for the orchestrator's page."""
    sentences = "\n".join(f"- {expectation.sentence}" for expectation in suite.expectations)
    return f"{suite.about}\n\n{sentences}"


def last_materializations(
    instance: dg.DagsterInstance, table: str, partitions: Sequence[str | None]
) -> dict[str | None, Sequence[dg.EventLogRecord]]:
    """The last two materializations of each partition, the last one first.

    One query covers a few partitions; a partition that the others crowd out of the answer gets its own query.
    """
    found: dict[str | None, Sequence[dg.EventLogRecord]] = {}
    for start in range(0, len(partitions), ASKED_TOGETHER):
        some = partitions[start : start + ASKED_TOGETHER]
        events = _last_events(instance, table, some, 2 * len(some))
        together = {partition: [each for each in events if each.partition_key == partition] for partition in some}
        is_all = len(events) < 2 * len(some)
        found |= {
            partition: mine[:2] if is_all or len(mine) >= 2 else _last_events(instance, table, [partition], 2)
            for partition, mine in together.items()
        }
    return found


def _last_events(
    instance: dg.DagsterInstance, table: str, partitions: Sequence[str | None], limit: int
) -> Sequence[dg.EventLogRecord]:
    keys = [partition for partition in partitions if partition is not None]
    chosen = dg.AssetRecordsFilter(dg.AssetKey(table), asset_partitions=keys or None)
    return instance.fetch_materializations(chosen, limit=limit).records


def _target(
    table: str, partition: str | None, events: Sequence[dg.EventLogRecord], edits: Mapping[str, Edit]
) -> Target:
    """The partition's last materialization, with its record, the one before, and edits by other processes since."""
    if not events or events[0].asset_materialization is None:
        where = table if partition is None else f"{table}, partition {partition},"
        raise RecordError(f"{where} has never been materialized. Materialize it, then check it.")
    last = events[0]
    record = Record.from_metadata(events[0].asset_materialization.metadata)
    key = partition or (WHOLE if TABLES[table].buckets else MINUTE.key(record.as_of_us or 0))
    before = events[1].asset_materialization if len(events) > 1 else None
    return Target(
        AssetCheckEvaluationTargetMaterializationData(
            storage_id=last.storage_id, run_id=last.run_id, timestamp=last.timestamp
        ),
        Recorded(key, record, _readable(before) if before else None, edits.get(key)),
    )


def _readable(materialization: dg.AssetMaterialization) -> Record | None:
    """The record of an earlier materialization; None if it cannot be read any more."""
    try:
        return Record.from_metadata(materialization.metadata)
    except RecordError:
        return None


def _evaluation(
    suite: Suite, result: CheckResult, target: Target, seconds: float, together: int
) -> AssetCheckEvaluation:
    metadata: dict[str, Any] = {
        "expectations": len(result.validation.results),
        "failed": len(result.failed),
        "wrong_rows": sum(count_of(each) for each in result.failed),
        "table_version": target.recorded.edit.version if target.recorded.edit else target.recorded.record.table_version,
        "seconds": round(seconds, 3),
        "judged_together": together,
    }
    if result.failed:
        metadata["result"] = dg.MetadataValue.md(_table(result))
        metadata["examples"] = dg.MetadataValue.json({name_of(each): examples_of(each) for each in result.failed})
    partition = target.recorded.record.partition
    return _stored(suite, partition, result.message, passed=result.passed, about=target.data, metadata=metadata)


def _settled(suite: Suite, target: Target) -> AssetCheckEvaluation:
    """The result of a partition whose input was dropped: an input is never dropped under a failed partition (R5)."""
    is_edited = target.recorded.edit is not None
    why = SETTLED_AND_EDITED if is_edited else SETTLED
    return _stored(suite, target.recorded.partition, why, passed=not is_edited, about=target.data)


def _stored(
    suite: Suite,
    partition: str | None,
    message: str,
    *,
    passed: bool = False,
    about: AssetCheckEvaluationTargetMaterializationData | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> AssetCheckEvaluation:
    """A result as the orchestrator stores it; one about no materialization is a refusal: nothing could be checked."""
    return AssetCheckEvaluation(
        asset_key=dg.AssetKey(suite.table),
        check_name=CHECK_NAME,
        passed=passed,
        description=message,
        metadata=metadata,
        blocking=True,
        partition=partition,
        target_materialization_data=about,
    )


def _table(result: CheckResult) -> str:
    """Every expectation and its result, as a table for people."""
    lines = [
        f"| {sentence_of(each)} | {'none' if each.success else f'**{count_of(each):,}**'} |"
        for each in result.validation.results
    ]
    return "\n".join(["| expectation | wrong rows |", "| --- | --- |", *lines])
