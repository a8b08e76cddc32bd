"""When a partition follows its inputs: the automation condition that every declared derived table gets.

A refresh (`refresh_sensor.py`) makes all that is stale in one run. These conditions request what it leaves: partitions
whose input was repaired since, and those that failed, less and less often.

Belongs here: the condition, and the sensor that evaluates it. Does not belong here: when new segments are drained
(`sensors.py`), runs by the clock (`schedules.py`), when a partition is stale (`assets/stale.py`).
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence, Set
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg

from assets.graph import By, Derived, Need
from assets.names import PARTITION, RANGE_END, RANGE_START
from assets.refresh import PARTITIONS_TOGETHER
from assets.tables import GRAPH, TABLES
from assets.trust import WAITS_ITSELF, blocked, made_of_any
from orchestration.backoff import IsPaused
from orchestration.foreign import refuse_foreign
from orchestration.news import Evaluation, files_of, patience_s
from orchestration.refreshes import stale_now, was_refreshed
from orchestration.runs import ranges_of
from orchestration.timetable import RETRY_AT, TABLES_EVERY_S
from resources.dagster_internals import SensorExecutionData, copy
from tidemark.storage.home import Home

AC = dg.AutomationCondition

# The orchestrator's mappings cannot say which partitions these are made from: the log or the tables say it.
LOOKED_UP = (By.RECEIPT, By.STAMP, By.BATCH, By.MEETING)

# The stale partitions that each look of the sensor found, by its view of the assets: all conditions of a look see the
# same state.
_stale: WeakKeyDictionary[object, dict[str, dict[str, str]]] = WeakKeyDictionary()


class IsStale(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions that were made from less data than their inputs hold now.

    It looks at the present state, not at what has happened since the last tick. So orchestrator events between a
    request and the next tick, a tick lost in a crash, and a killed run all lead to the same answer. Followers of a
    stale partition are stale too, so they are requested together, in one run.
    """

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "is_stale"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """The stale partitions among the given ones."""
        view, partitions = context.asset_graph_view, context.partitions_def
        if partitions is None or context.candidate_subset.is_empty:
            return dg.AutomationResult(context, context.get_empty_subset())
        stale = self.find(context).get(context.key.to_user_string(), {})
        keys = {key for key in stale if partitions.has_partition_key(key)}
        subset = view.get_subset_from_partition_keys(context.key, partitions, keys)
        return dg.AutomationResult(context, context.candidate_subset.compute_intersection(subset))

    def find(self, context: dg.AutomationContext[dg.AssetKey]) -> dict[str, dict[str, str]]:
        """Asset → partition → why it is stale: one answer for a whole look of the sensor."""
        view = context.asset_graph_view
        if view not in _stale:
            _stale[view] = find_stale(view.instance)
        return _stale[view]


class IsStillStale(IsStale):
    """The same, computed again: a run may have ended since the look began, and its partitions are no longer stale."""

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "is_still_stale"

    def find(self, context: dg.AutomationContext[dg.AssetKey]) -> dict[str, dict[str, str]]:
        """The present state."""
        return find_stale(context.asset_graph_view.instance)


def find_stale(instance: dg.DagsterInstance) -> dict[str, dict[str, str]]:
    """What is stale after a refresh: until there was one of the tables as they are, nothing is requested beside it."""
    return stale_now(instance) if was_refreshed(instance, Home.locate()) else {}


class HangsOnWrong(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions that must not be computed now because of their inputs (`assets/trust.py`).

    The orchestrator's own mappings cannot always tell. Deltas that arrived in an hour may have happened at any time, so
    for the orchestrator every partition depends on every hour; the log says which really do. And a session may have
    begun any time ago; the tables say when. Without a partition in question, nothing is read: with a year of hours,
    Dagster's own conditions on checks take seconds of every ten.
    """

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "hangs_on_wrong"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """The given partitions that depend on a blocked or failed one."""
        view, partitions = context.asset_graph_view, context.partitions_def
        if partitions is None or context.candidate_subset.is_empty:
            return dg.AutomationResult(context, context.get_empty_subset())
        wanted = context.candidate_subset.expensively_compute_partition_keys()
        held = self.held(context, GRAPH[context.key.to_user_string()], wanted)
        return dg.AutomationResult(context, view.get_subset_from_partition_keys(context.key, partitions, set(held)))

    def held(self, context: dg.AutomationContext[dg.AssetKey], derived: Derived, wanted: Set[str]) -> Collection[str]:
        """The wanted partitions that have to wait: the same answer that a command gets."""
        together = {
            need.table.name: requested_keys(context, need.table.name)
            for need in derived.needs
            if _is_of_the_same_time(need, derived)
        }
        return blocked(Home.locate(), context.asset_graph_view.instance, derived, wanted, together=together)


class HangsOnStale(HangsOnWrong):
    """The same for stale partitions that wait themselves: anything made from them now would still be stale."""

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "hangs_on_stale"

    def held(self, context: dg.AutomationContext[dg.AssetKey], derived: Derived, wanted: Set[str]) -> Collection[str]:
        """Partitions made from the stale partitions of an input that are not requested in this look.

        Not of the table itself: the carry-over of an hour is known only when the hour was made, and then the next one
        is stale.
        """
        stale = IsStale().find(context)
        waiting = {table: stale.get(table, {}).keys() - requested_keys(context, table) for table in derived.inputs}
        against = {table: dict.fromkeys(keys, WAITS_ITSELF) for table, keys in waiting.items()}
        return made_of_any(Home.locate(), derived, wanted, against)


def requested_keys(context: dg.AutomationContext[dg.AssetKey], table: str) -> Set[str]:
    """The partitions of a table that are requested in this look; a table comes before those that are made from it."""
    requested = context.request_subsets_by_key.get(dg.AssetKey(table))
    return requested.expensively_compute_partition_keys() if requested else set()


def _is_of_the_same_time(need: Need, derived: Derived) -> bool:
    """Whether a partition is made only from the one of the same time: requested together, they are one run."""
    is_one = need.by is By.EVENT and not need.before_us and not need.after_us
    return is_one and need.table.grain == derived.spec.grain


def follow_inputs(*, is_looked_up: bool = False) -> dg.AutomationCondition[Any]:
    """Exactly the partitions that are behind their inputs, unless one is under way or an input failed (O4)."""
    is_idle = (~AC.any_deps_in_progress() & ~AC.in_progress()).with_label("nothing is under way")
    is_time = (AC.cron_tick_passed(RETRY_AT) & ~IsPaused()).with_label("it is time to try again")
    may_be_tried = (~AC.execution_failed() | is_time).with_label("the last run did not fail, or it is time")
    must_wait: dg.AutomationCondition[Any] = (
        HangsOnStale()
        if is_looked_up
        else AC.any_deps_match(IsStale() & ~AC.will_be_requested()).with_label("an input is stale and waits itself")
    )
    # Last, because a run that was under way at the first question may be finished at the second, and must not be
    # repeated.
    return IsStale() & is_idle & may_be_tried & ~HangsOnWrong() & ~must_wait & IsStillStale()


def automated(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """The asset. It follows its inputs if it has any; without partitions of time it follows a clock or a sensor."""
    if not isinstance(asset.partitions_def, dg.TimeWindowPartitionsDefinition):
        return asset

    def condition(spec: dg.AssetSpec) -> dg.AutomationCondition[Any]:
        derived = GRAPH.get(spec.key.to_user_string())
        needs = derived.needs if derived else ()
        return follow_inputs(is_looked_up=any(need.by in LOOKED_UP for need in needs))

    return asset.map_asset_specs(
        lambda spec: spec.replace_attributes(automation_condition=condition(spec)) if _is_derived(spec) else spec
    )


# There is one such sensor, and one tick of it at a time.
LAST = Evaluation()


def _is_derived(spec: dg.AssetSpec) -> bool:
    return spec.key.to_user_string() in GRAPH


class RangeSensor(dg.AutomationConditionSensorDefinition):
    """Dagster's sensor of automation conditions, whose requests for neighbouring partitions are one run (O2).

    Dagster makes a run of each partition, a JVM each; or a backfill, which first waits for the daemon's next look at
    backfills, half a minute later.
    """

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> SensorExecutionData:
        """The requested partitions, in ranges. If there were none last time, it waits for news of any."""
        refuse_foreign(context.instance, Home.locate())
        # Two lines at every look, of which a day has thousands.
        context.log.setLevel(logging.WARNING)
        data = LAST.after_news(
            lambda: super(RangeSensor, self).evaluate_tick(context),
            lambda found: bool(found.run_requests),
            files_of(Home.locate(), context.instance),
            patience_s=patience_s(context.instance),
        )
        return copy(data, run_requests=in_ranges(data.run_requests)) if data.run_requests else data


def in_ranges(requests: Sequence[dg.RunRequest]) -> list[dg.RunRequest]:
    """The same partitions of the same assets: unbroken ranges in one request, at most a week of hours in each."""
    alike: defaultdict[tuple[frozenset[dg.AssetKey], frozenset[Any]], dict[str, dg.RunRequest]] = defaultdict(dict)
    found = [request for request in requests if request.partition_key is None]
    for request in requests:
        if request.partition_key is not None:
            what = (frozenset(request.asset_selection or ()), frozenset(request.asset_check_keys or ()))
            alike[what][request.partition_key] = request
    for (assets, checks), by_key in alike.items():
        # Assets that are requested together have the same partitions.
        table = next(iter(assets or {check.asset_key for check in checks})).to_user_string()
        for keys in ranges_of(by_key, TABLES[table].grain):
            starts = range(0, len(keys), PARTITIONS_TOGETHER)
            parts = [keys[start : start + PARTITIONS_TOGETHER] for start in starts]
            found.extend(_together([by_key[key] for key in part]) for part in parts)
    return found


def _together(requests: Sequence[dg.RunRequest]) -> dg.RunRequest:
    first, last = requests[0], requests[-1]
    if first is last:
        return first
    tags = {name: value for name, value in first.tags.items() if name != PARTITION}
    return first.with_replaced_attrs(
        partition_key=None, tags={**tags, RANGE_START: str(first.partition_key), RANGE_END: str(last.partition_key)}
    )


follow_inputs_sensor = RangeSensor(
    "follow_inputs",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=TABLES_EVERY_S,
    use_user_code_server=True,
    emit_backfills=False,
    description="Computes the partitions whose inputs changed, and only those.",
)
