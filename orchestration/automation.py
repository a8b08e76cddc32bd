"""When a table follows its inputs: the automation condition that every derived table gets by being declared.

Belongs here: the condition, and the sensor that evaluates it. Does not belong here: when new segments are drained
(`sensors.py`), what runs by the clock (`schedules.py`), what makes a partition stale (`assets/rollups/stale.py`).
"""

from collections import defaultdict
from typing import Any

import dagster as dg

from assets.rollups.stale import stale_partitions
from resources.home import Home
from resources.record import Record

AC = dg.AutomationCondition

# A run that failed is tried again this often: most failures (a busy disk, a killed process) pass by themselves.
RETRY_CRON = "*/10 * * * *"
TICK_SECONDS = 10

# Records by the number of their event, for each storage of events, for as long as this process lives; see
# `Record.latest_by_partition`.
_seen: defaultdict[str, dict[int, Record | None]] = defaultdict(dict)


class IsStale(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions that were made from less than their inputs hold now.

    It asks for what is, and not for what has happened since the last tick: events of the orchestrator that arrive
    between a request and the next tick, a tick that was lost in a crash, a run that was killed, all end in the same
    answer. Followers of a stale partition are stale too, so that they are requested together, in one run.
    """

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "is_stale"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """The stale ones among the partitions in question."""
        view, partitions = context.asset_graph_view, context.partitions_def
        if partitions is None:
            return dg.AutomationResult(context, context.get_empty_subset())
        seen = _seen[view.instance.run_storage.get_run_storage_id()]  # type: ignore[attr-defined]
        stale = stale_partitions(view.instance, Home.locate(), seen=seen)
        keys = {key for key in stale.get(context.key.to_user_string(), {}) if partitions.has_partition_key(key)}
        subset = view.get_subset_from_partition_keys(context.key, partitions, keys)
        return dg.AutomationResult(context, context.candidate_subset.compute_intersection(subset))


def follow_inputs() -> dg.AutomationCondition[Any]:
    """Exactly the partitions that are behind their inputs, unless one is under way or an input is wrong (O4)."""
    is_idle = (~AC.any_deps_in_progress() & ~AC.in_progress()).with_label("nothing is under way")
    may_be_tried = (~AC.execution_failed() | AC.cron_tick_passed(RETRY_CRON)).with_label("the last run did not fail")
    found_wrong = AC.any_deps_match(
        ~AC.missing() & ~AC.all_checks_match(AC.check_passed(), blocking_only=True)
    ).with_label("an input was found wrong, or is not judged yet")
    must_wait = AC.any_deps_match(IsStale() & ~AC.will_be_requested()).with_label("an input is stale and waits itself")
    return IsStale() & is_idle & may_be_tried & ~found_wrong & ~must_wait


def automated(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """The asset, following its inputs if it has any."""
    return asset.map_asset_specs(
        lambda spec: spec.replace_attributes(automation_condition=follow_inputs()) if list(spec.deps) else spec
    )


follow_inputs_sensor = dg.AutomationConditionSensorDefinition(
    "follow_inputs",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=TICK_SECONDS,
    use_user_code_server=True,
    # Runs at once; a backfill would first wait for the daemon's next look at backfills, half a minute later.
    emit_backfills=False,
    description="Computes the partitions whose inputs changed, and only those.",
)
