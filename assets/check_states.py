"""The state of each partition by its last check: passed, failed, or not checked since it was last written.

Belongs here: the one rule, over the last materialization of a partition and the last result of its check, for as many
tables as are asked about (`resources/last_events.py` reads both). `status`, the automation, commands and runs all use
it. Importing this needs neither Dagster nor Arrow, because `status` imports it. Does not belong here: whether another
table may be built on a partition (`trust.py`), how rows are checked (`expectations`).
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from assets.names import CHECK_NAME
from resources.last_events import LastResult, last_made, last_results

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
    return check_states_of(instance, [table])[table]


def check_states_of(instance: "DagsterInstance", tables: Collection[str]) -> "dict[str, dict[str | None, CheckState]]":
    """The same of many tables, which costs little more than of one."""
    # Results first: a partition that is materialized in between then counts as not checked yet, correctly.
    results = last_results(instance, tables, CHECK_NAME)
    made = last_made(instance, tables)
    return {table: _states(results.get(table, ()), made[table]) for table in tables}


def _states(results: Iterable[LastResult], made: "Mapping[str | None, int]") -> "dict[str | None, CheckState]":
    has_partitions = bool(made.keys() - {None})
    states: dict[str | None, CheckState] = dict.fromkeys((key for key in made if key), CheckState.UNCHECKED)
    for partition, status, event, target in results:
        if partition is None and has_partitions:
            continue  # about the table as a whole, before it had partitions
        last = made.get(partition)
        if target is not None and target == last and status == PASSED:
            states[partition] = CheckState.PASSED  # as `state_of` says; nearly all of a year's partitions end here
            continue
        state = state_of(status, event, target, last)
        if state is not CheckState.NOT_MADE or target is None:
            states[partition] = state  # otherwise its materialization was wiped during the check
    return states


def check_key(table: str) -> "AssetCheckKey":
    """The key of a table's only check."""
    from dagster import AssetCheckKey, AssetKey

    return AssetCheckKey(AssetKey(table), CHECK_NAME)
