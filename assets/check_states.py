"""How each partition of a table stands by its last check: passed, failed, or not checked as it lies there now.

Belongs here: the one rule, over the last materialization of a partition and the last result of its check, and reading
both from the orchestrator, with a fixed number of questions per table. `status`, the automation, commands and runs all
ask here. Importing this needs neither Dagster nor Arrow, because `status` imports it. Does not belong here: what
follows for whoever builds on a partition (`trust.py`), how rows are checked (`expectations`).
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from assets.names import CHECK_NAME

if TYPE_CHECKING:
    from dagster import AssetCheckKey, DagsterInstance

# The orchestrator's words for a result; its third is that there will be one.
PASSED, FAILED = "SUCCEEDED", "FAILED"


class CheckState(StrEnum):
    """What the last check says of the rows that were written last."""

    PASSED = "passed"
    FAILED = "failed"
    FAILED_BEFORE = "failed_before"  # not checked since it was written anew, and it failed before that
    UNCHECKED = "unchecked"
    NOT_MADE = "not_made"  # a check is under way, or was, of what nothing is recorded of

    @property
    def has_failed(self) -> bool:
        """Whether its last result was bad, on whichever rows."""
        return self in (CheckState.FAILED, CheckState.FAILED_BEFORE)

    @property
    def is_open(self) -> bool:
        """Whether there is no result on the rows that lie there now."""
        return self in (CheckState.UNCHECKED, CheckState.FAILED_BEFORE)


def state_of(status: str, event: int, target: int | None, made: int | None) -> CheckState:
    """The state of a partition that was `made` last by that event, and checked last by another.

    `target` is the materialization that the check was about. A refusal is about none in particular, and holds until
    there is a later one.
    """
    is_current = target == made if target is not None else status == FAILED and (made is None or event > made)
    if status == FAILED:
        return CheckState.FAILED if is_current else CheckState.FAILED_BEFORE
    if made is None:
        return CheckState.NOT_MADE
    return CheckState.PASSED if is_current and status == PASSED else CheckState.UNCHECKED


def check_states(instance: "DagsterInstance", table: str) -> "dict[str | None, CheckState]":
    """The state of every partition that was materialized or checked; none stands for a table without partitions.

    What has no partitions and was never checked is not in it, whether it was written or not: `drain` is such a thing.
    """
    from dagster import AssetKey, DagsterEventType

    storage, kind = instance.event_log_storage, DagsterEventType.ASSET_MATERIALIZATION
    # Results first: what is materialized between the two questions is then not checked yet, which is true.
    infos = storage.get_asset_check_partition_info([check_key(table)])
    made = storage.get_latest_storage_id_by_partition(AssetKey(table), kind)
    states: dict[str | None, CheckState] = dict.fromkeys(made, CheckState.UNCHECKED)
    for info in infos:
        partition = info.partition_key
        if partition is None and made:
            continue  # said of the table as a whole, before it had partitions
        last = info.latest_materialization_storage_id if partition is None else made.get(partition)
        target = info.latest_target_materialization_storage_id
        status = info.latest_execution_status.value
        state = state_of(status, info.latest_check_event_storage_id, target, last)
        if state is not CheckState.NOT_MADE or target is None:
            states[partition] = state  # else what it is about was wiped while it was checked
    return states


def check_key(table: str) -> "AssetCheckKey":
    """The key of a table's only check."""
    from dagster import AssetCheckKey, AssetKey

    return AssetCheckKey(AssetKey(table), CHECK_NAME)
