"""The verdicts on every table's partitions, as the orchestrator tells of them.

Belongs here: the states of all partitions, counted, and why a check failed. Dagster's instance is asked a fixed number
of questions per table and never one per partition: a year has 8,760 of them. What is stored of a verdict in full is
read only where it is not good. Does not belong here: what passed, failed and not checked mean
(`assets/check_states.py`), and runs (`run_history.py`).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from assets.check_states import CheckState, check_key, check_states
from orchestration.reasons import first_sentence
from orchestration.run_status import CheckStatus, FailedCheck
from resources.dagster_internals import AssetCheckExecutionRecordStatus

# Verdicts in full that are read at once: a page, not a bound of truth.
VERDICTS_READ = 1_000


def read_checks(instance: dg.DagsterInstance) -> dict[str, CheckStatus]:
    """What is known of each table; nothing of what is neither partitioned nor judged, as `drain` is."""
    with _without_collector():
        tables = (key.to_user_string() for key in instance.get_asset_keys())
        return {table: status for table in tables if (status := _check_status(instance, table))}


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without looking for garbage: the answers for a year come and go by the ten thousand, and none is in a cycle.

    They would make the collector walk through all that Dagster consists of, again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_status(instance: dg.DagsterInstance, table: str) -> CheckStatus | None:
    states = check_states(instance, table)
    if not states:
        return None
    failed = {partition or "" for partition, state in states.items() if state is CheckState.FAILED}
    messages = _messages(instance, check_key(table), failed) if failed else {}
    passed = sum(state is CheckState.PASSED for state in states.values())
    return CheckStatus(
        passed=passed,
        failed=[FailedCheck(partition, messages[partition]) for partition in sorted(messages, reverse=True)],
        unjudged=len(states) - passed - len(failed),
    )


def _messages(instance: dg.DagsterInstance, check: dg.AssetCheckKey, failed: set[str]) -> dict[str, str]:
    """Partition → first sentence of its verdict; a table without partitions is under no name.

    Only bad verdicts are read, the last first, until each partition has its own.
    """
    found, missing, cursor = dict[str, str](), set(failed), None
    while missing:
        page = instance.event_log_storage.get_asset_check_execution_history(
            check, limit=VERDICTS_READ, cursor=cursor, status={AssetCheckExecutionRecordStatus.FAILED}
        )
        for record in page:
            partition = record.partition or ""
            if partition in missing:
                missing.remove(partition)
                found[partition] = first_sentence((record.evaluation and record.evaluation.description) or "")
        if len(page) < VERDICTS_READ:
            break
        cursor = page[-1].id
    return found | dict.fromkeys(missing, "")
