"""The check results of every table's partitions, as the orchestrator reports them.

Belongs here: the states of all partitions, counted, and why a check failed. Dagster's instance gets a fixed number of
queries per table and never one per partition: a year has 8,760 of them. The full stored check result is read only for
partitions that did not pass. Does not belong here: what passed, failed and not checked mean (`assets/check_states.py`),
and runs (`run_history.py`).
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from assets.check_states import CheckState, check_key, check_states
from orchestration.reasons import first_sentence
from orchestration.run_status import CheckStatus, FailedCheck
from resources.dagster_internals import AssetCheckExecutionRecordStatus
from tidemark.model.buckets import BUCKET
from tidemark.model.timegrid import GRAINS
from tidemark.storage.home import Home
from tidemark.tables.known_table import current_edits

# Full check results that are read at once: the size of a page, not a limit on the answer.
RESULTS_READ = 1_000


def read_checks(instance: dg.DagsterInstance, home: Home) -> dict[str, CheckStatus]:
    """The check results of each table; none for an asset without partitions and checks, such as `drain`."""
    with _without_collector():
        tables = (key.to_user_string() for key in instance.get_asset_keys())
        return {table: status for table in tables if (status := _check_status(instance, home, table))}


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the garbage collector: the answers for a year come and go by the ten thousand, and none is in a cycle.

    They would make the collector walk through all of Dagster's objects, again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_status(instance: dg.DagsterInstance, home: Home, table: str) -> CheckStatus | None:
    states = check_states(instance, table)
    if not states:
        return None
    failed = {partition or "" for partition, state in states.items() if state is CheckState.FAILED}
    messages = _messages(instance, check_key(table), failed) if failed else {}
    # A partition edited by hand fails its next check, and nothing is built upon it from now on (decision 0010).
    messages = _edits(home, table, states) | messages
    passed = sum(state is CheckState.PASSED for state in states.values())
    passed -= sum(states.get(partition or None) is CheckState.PASSED for partition in messages)
    return CheckStatus(
        passed=passed,
        failed=[FailedCheck(partition, messages[partition]) for partition in sorted(messages, reverse=True)],
        unjudged=len(states) - passed - len(messages),
    )


def _edits(home: Home, table: str, states: Mapping[str | None, CheckState]) -> dict[str, str]:
    """Partition → which foreign edit was made there, if the orchestrator knows it; "" is the whole table.

    The grain comes from the key, and not from the table's declaration, which would need Arrow.
    """
    found: dict[str, str] = {}
    for start, edit in current_edits(home, table).items():
        keys = [None, *(grain.key(start) for grain in (*GRAINS.values(), BUCKET) if grain.floor(start) == start)]
        found |= {key or "": edit.said for key in keys if key in states}
    return found


def _messages(instance: dg.DagsterInstance, check: dg.AssetCheckKey, failed: set[str]) -> dict[str, str]:
    """Partition → first sentence of its check result; a table without partitions is under no name.

    Only failed check results are read, latest first, until each partition has its own.
    """
    found, missing, cursor = dict[str, str](), set(failed), None
    while missing:
        page = instance.event_log_storage.get_asset_check_execution_history(
            check, limit=RESULTS_READ, cursor=cursor, status={AssetCheckExecutionRecordStatus.FAILED}
        )
        for record in page:
            partition = record.partition or ""
            if partition in missing:
                missing.remove(partition)
                found[partition] = first_sentence((record.evaluation and record.evaluation.description) or "")
        if len(page) < RESULTS_READ:
            break
        cursor = page[-1].id
    return found | dict.fromkeys(missing, "")
