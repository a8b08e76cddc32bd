"""How long a partition is left alone if its runs fail again and again (O3).

Belongs here: counting failures in a row among the orchestrator's runs, and the pause that follows. Does not belong
here: when a run is due (`automation.py`), how often sensors try (`attempts.py`), and how `status` shows it
(`run_status.py`).
"""

from collections.abc import Iterator, Sequence

import dagster as dg

from assets.names import PARTITION, RANGE_END, RANGE_START, more_partitions

# How many runs of a table are looked at; with more failures the pause has long been at its longest.
RUNS_SEEN = 500
STEP_S = 600.0
# So that a repaired partition does not wait longer than this.
LONGEST_S = 3_600.0
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]


def pause_s(failures: int) -> float:
    """How long to wait after so many failures in a row: nothing, ten minutes, half an hour, then an hour."""
    # After some doublings it is the longest anyway, and the number would grow without end.
    doublings = min(max(failures - 1, 0), 10)
    return min(STEP_S * ((1 << doublings) - 1), LONGEST_S)


def last_runs(instance: dg.DagsterInstance, asset: dg.AssetKey) -> list[dg.RunRecord]:
    """The finished runs of an asset, newest first."""
    found = instance.get_run_records(dg.RunsFilter(statuses=ENDED), limit=RUNS_SEEN)
    return [each for each in found if asset in (each.dagster_run.asset_selection or ())]


def is_paused(runs: Sequence[dg.RunRecord], partition: str, now_s: float) -> bool:
    """Whether the runs of a partition have failed in a row and it is too early to try again."""
    failures, last_s = 0, 0.0
    for run in _of_partition(runs, partition):
        if run.dagster_run.status is dg.DagsterRunStatus.SUCCESS:
            break
        last_s = last_s or run.end_time or run.update_timestamp.timestamp()
        failures += 1
    return failures > 0 and now_s < last_s + pause_s(failures)


def _of_partition(runs: Sequence[dg.RunRecord], partition: str) -> Iterator[dg.RunRecord]:
    for run in runs:
        tags = run.dagster_run.tags
        single = tags.get(PARTITION, "")
        # Keys sort as the time that they stand for.
        is_in_range = tags.get(RANGE_START, single) <= partition <= tags.get(RANGE_END, single)
        if is_in_range or partition in more_partitions(tags):
            yield run


class IsPaused(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions whose runs fail again and again, until it is time to try once more."""

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "is_paused"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """These among the given partitions; without any, no run is looked at."""
        if context.partitions_def is None or context.candidate_subset.is_empty:
            return dg.AutomationResult(context, context.get_empty_subset())
        view, now_s = context.asset_graph_view, context.evaluation_time.timestamp()
        runs = last_runs(view.instance, context.key)
        asked = context.candidate_subset.expensively_compute_partition_keys()
        keys = {key for key in asked if is_paused(runs, key, now_s)}
        return dg.AutomationResult(
            context, view.get_subset_from_partition_keys(context.key, context.partitions_def, keys)
        )
