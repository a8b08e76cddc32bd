"""The state of each partition by its last check: passed, failed, or not checked since it was last written.

Belongs here: the one rule, over the last materialization of a partition and the last result of its check, and reading
both from the orchestrator, with a fixed number of queries per table. `status`, the automation, commands and runs all
use it. Importing this needs neither Dagster nor Arrow, because `status` imports it. Does not belong here: whether
another table may be built on a partition (`trust.py`), how rows are checked (`expectations`).
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from assets.names import CHECK_NAME

if TYPE_CHECKING:
    from dagster import AssetCheckKey, DagsterInstance

# The orchestrator's words for a result; its third word says that a check is planned.
PASSED, FAILED = "SUCCEEDED", "FAILED"


class CheckState(StrEnum):
    """What the last check says about the rows that were written last."""

    PASSED = "passed"
    FAILED = "failed"
    FAILED_BEFORE = "failed_before"  # rewritten and not checked since; it failed before that
    UNCHECKED = "unchecked"
    NOT_MADE = "not_made"  # a check runs, or ran, but no materialization is recorded

    @property
    def has_failed(self) -> bool:
        """Whether the last check failed, on these rows or on earlier ones."""
        return self in (CheckState.FAILED, CheckState.FAILED_BEFORE)

    @property
    def is_open(self) -> bool:
        """Whether the current rows have no check result."""
        return self in (CheckState.UNCHECKED, CheckState.FAILED_BEFORE)


def state_of(status: str, event: int, target: int | None, made: int | None) -> CheckState:
    """The state of a partition: `made` is the event of its last materialization, `event` that of its last check.

    `target` is the materialization that the check was about. A refusal names none, and holds until the next
    materialization.
    """
    is_current = target == made if target is not None else status == FAILED and (made is None or event > made)
    if status == FAILED:
        return CheckState.FAILED if is_current else CheckState.FAILED_BEFORE
    if made is None:
        return CheckState.NOT_MADE
    return CheckState.PASSED if is_current and status == PASSED else CheckState.UNCHECKED


def check_states(instance: "DagsterInstance", table: str) -> "dict[str | None, CheckState]":
    """The state of every partition that was materialized or checked; None stands for a table without partitions.

    An asset without partitions that was never checked is left out, whether it was written or not; `drain` is one.
    """
    from dagster import AssetKey, DagsterEventType

    from resources.dagster_internals import AssetCheckExecutionRecordStatus

    passed = AssetCheckExecutionRecordStatus(PASSED)
    storage, kind = instance.event_log_storage, DagsterEventType.ASSET_MATERIALIZATION
    # Results first: a partition that is materialized between the two queries then counts as not checked yet, correctly.
    infos = storage.get_asset_check_partition_info([check_key(table)])
    made = storage.get_latest_storage_id_by_partition(AssetKey(table), kind)
    states: dict[str | None, CheckState] = dict.fromkeys(made, CheckState.UNCHECKED)
    for info in infos:
        partition, target = info.partition_key, info.latest_target_materialization_storage_id
        if partition is None and made:
            continue  # about the table as a whole, before it had partitions
        last = info.latest_materialization_storage_id if partition is None else made.get(partition)
        if target is not None and target == last and info.latest_execution_status is passed:
            states[partition] = CheckState.PASSED  # as `state_of` says; nearly all of a year's partitions end here
            continue
        status = info.latest_execution_status.value
        state = state_of(status, info.latest_check_event_storage_id, target, last)
        if state is not CheckState.NOT_MADE or target is None:
            states[partition] = state  # otherwise its materialization was wiped during the check
    return states


def check_key(table: str) -> "AssetCheckKey":
    """The key of a table's only check."""
    from dagster import AssetCheckKey, AssetKey

    return AssetCheckKey(AssetKey(table), CHECK_NAME)
