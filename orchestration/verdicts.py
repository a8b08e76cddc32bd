"""The verdicts on every table's partitions, as the orchestrator tells of them.

Belongs here: questions to Dagster's instance about checks, a fixed number per table and never one per partition: a year
has 8,760 of them. What is stored of a verdict in full is read only where it is not good. Does not belong here: whether
a partition may be built upon (`assets/trust.py`), and runs (`run_history.py`).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from assets.names import CHECK_NAME
from orchestration.reasons import first_sentence
from orchestration.run_status import CheckStatus, FailedCheck

if TYPE_CHECKING:
    from resources.dagster_internals import AssetCheckExecutionRecordStatus

# Verdicts in full that are read at once: a page, not a bound of truth.
VERDICTS_READ = 1_000
# The orchestrator's words for a verdict; its third is that there will be one.
GOOD, WRONG = "SUCCEEDED", "FAILED"


def read_checks(instance: dg.DagsterInstance) -> dict[str, CheckStatus]:
    """What is known of each table; nothing of what is neither partitioned nor judged, as `drain` is."""
    with _without_collector():
        found = ((key.to_user_string(), _check_status(instance, key)) for key in instance.get_asset_keys())
        return {name: status for name, status in found if status}


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


def _check_status(instance: dg.DagsterInstance, key: dg.AssetKey) -> CheckStatus | None:
    check, storage = dg.AssetCheckKey(key, CHECK_NAME), instance.event_log_storage
    # Verdicts first: what is materialized between the two questions is then not judged yet, which is true.
    judged = storage.get_asset_check_partition_info([check])
    materialized = storage.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION)
    # Nearly all of a year are good, which is seen at a glance; what else there is, is looked at one by one.
    rest = [
        info
        for info in judged
        if info.latest_target_materialization_storage_id != materialized.get(info.partition_key or "", 0)
        or info.latest_execution_status.value != GOOD
    ]
    passed, wrong, others = len(judged) - len(rest), {}, 0
    for info in rest:
        partition, target = info.partition_key, info.latest_target_materialization_storage_id
        last = info.latest_materialization_storage_id if partition is None else materialized.get(partition)
        if last is None and target is not None:
            continue  # what it is about was wiped while it was judged
        others += partition not in materialized
        verdict = _verdict(info.latest_execution_status.value, info.latest_check_event_storage_id, target, last)
        passed += verdict is True
        if verdict is False:
            wrong[partition] = info.latest_execution_status
    if not materialized and not others:
        return None
    messages = _messages(instance, check, wrong)
    return CheckStatus(
        passed=passed,
        failed=[FailedCheck(partition, messages[partition]) for partition in sorted(messages, reverse=True)],
        unjudged=len(materialized) + others - passed - len(wrong),
    )


def _verdict(status: str, event: int, target: int | None, materialized: int | None) -> bool | None:
    """Whether the partition's last materialization was found right; none while nobody has said."""
    if target is None:
        # A refusal is about no materialization in particular; it holds until there is a later one.
        return False if status == WRONG and (materialized is None or event > materialized) else None
    return {GOOD: True, WRONG: False}.get(status) if target == materialized else None


def _messages(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, wrong: "dict[str | None, AssetCheckExecutionRecordStatus]"
) -> dict[str, str]:
    """Partition → first sentence of its verdict; a table without partitions is under no name.

    Only verdicts with the same status are read, the last first, until each partition has its own.
    """
    found, cursor = dict[str, str](), None
    missing = {partition or "" for partition in wrong}
    while missing:
        page = instance.event_log_storage.get_asset_check_execution_history(
            check, limit=VERDICTS_READ, cursor=cursor, status=set(wrong.values())
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
