"""When a table follows its inputs: the automation condition that every derived table gets by being declared.

Belongs here: the condition, and the sensor that evaluates it. Does not belong here: when new segments are drained
(`sensors.py`), what runs by the clock (`schedules.py`), what makes a partition stale (`assets/stale.py`).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence, Set
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg

from assets.graph import By, Derived, Need
from assets.names import PARTITION, RANGE_END, RANGE_START
from assets.stale import stale_partitions
from assets.tables import GRAPH, TABLES
from assets.trust import WAITS_ITSELF, blocked, made_of_any
from orchestration.backoff import IsPaused
from orchestration.materialize import PARTITIONS_PER_RUN
from orchestration.runs import ranges_of
from orchestration.timetable import RETRY_AT, TABLES_EVERY_S
from resources.dagster_internals import SensorExecutionData, copy
from resources.record import Record
from tidemark.storage.home import Home

AC = dg.AutomationCondition

# What the orchestrator's mappings cannot say: which partitions these are made of stands in the log, or in the tables.
LOOKED_UP = (By.RECEIPT, By.STAMP, By.BATCH, By.MEETING)

# Records by the number of their event, for each storage of events, for as long as this process lives; see
# `Record.latest_by_partition`.
_seen: defaultdict[str, dict[int, Record | None]] = defaultdict(dict)
# What was found stale, for each look of the sensor, by its view of the assets: all conditions of a look are about the
# same moment.
_stale: WeakKeyDictionary[object, dict[str, dict[str, str]]] = WeakKeyDictionary()


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
    """The same, asked anew: a run may have ended since the look began, and what it made is stale no more."""

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "is_still_stale"

    def find(self, context: dg.AutomationContext[dg.AssetKey]) -> dict[str, dict[str, str]]:
        """As it is now."""
        return find_stale(context.asset_graph_view.instance)


def find_stale(instance: dg.DagsterInstance) -> dict[str, dict[str, str]]:
    """What is stale in this home; records that were read before are not read again."""
    seen = _seen[instance.run_storage.get_run_storage_id()]  # type: ignore[attr-defined]
    return stale_partitions(instance, Home.locate(), seen=seen)


class HangsOnWrong(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions that must not be computed now, because of what they are made of (`assets/trust.py`).

    The orchestrator's own mappings cannot always tell. What arrived in an hour may have happened at any time, so for it
    every partition hangs on every hour; the log says which really do. And a session may have begun any time ago; the
    tables say when. Nothing is read as long as nobody asks about any partition: with a year of hours, Dagster's own
    conditions on checks take seconds of every ten.
    """

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "hangs_on_wrong"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Those of the partitions in question that hang on such a one."""
        view, partitions = context.asset_graph_view, context.partitions_def
        if partitions is None or context.candidate_subset.is_empty:
            return dg.AutomationResult(context, context.get_empty_subset())
        wanted = context.candidate_subset.expensively_compute_partition_keys()
        held = self.held(context, GRAPH[context.key.to_user_string()], wanted)
        return dg.AutomationResult(context, view.get_subset_from_partition_keys(context.key, partitions, set(held)))

    def held(self, context: dg.AutomationContext[dg.AssetKey], derived: Derived, wanted: Set[str]) -> Collection[str]:
        """Those of the wanted partitions that have to wait: the same answer that a command gets."""
        together = {
            need.table.name: requested_keys(context, need.table.name)
            for need in derived.needs
            if _is_of_the_same_time(need, derived)
        }
        return blocked(Home.locate(), context.asset_graph_view.instance, derived, wanted, together=together)


class HangsOnStale(HangsOnWrong):
    """The same for what is stale and waits itself: what is made of it now would still be stale afterwards."""

    @property
    def name(self) -> str:
        """As it is shown beside an evaluation."""
        return "hangs_on_stale"

    def held(self, context: dg.AutomationContext[dg.AssetKey], derived: Derived, wanted: Set[str]) -> Collection[str]:
        """What is made of the stale partitions of an input that are not requested in this look.

        Not of the table itself: what an hour hands over is known when it was made, and then the next one is stale.
        """
        stale = IsStale().find(context)
        waiting = {table: stale.get(table, {}).keys() - requested_keys(context, table) for table in derived.inputs}
        against = {table: dict.fromkeys(keys, WAITS_ITSELF) for table, keys in waiting.items()}
        return made_of_any(Home.locate(), derived, wanted, against)


def requested_keys(context: dg.AutomationContext[dg.AssetKey], table: str) -> Set[str]:
    """The partitions of a table that are requested in this look; it comes before what is made of it."""
    requested = context.request_subsets_by_key.get(dg.AssetKey(table))
    return requested.expensively_compute_partition_keys() if requested else set()


def _is_of_the_same_time(need: Need, derived: Derived) -> bool:
    """Whether a partition is made of that of the same time and of no other: requested together, they are one run."""
    is_one = need.by is By.EVENT and not need.before_us and not need.after_us
    return is_one and need.table.grain == derived.spec.grain


def follow_inputs(*, is_looked_up: bool = False) -> dg.AutomationCondition[Any]:
    """Exactly the partitions that are behind their inputs, unless one is under way or an input is wrong (O4)."""
    is_idle = (~AC.any_deps_in_progress() & ~AC.in_progress()).with_label("nothing is under way")
    is_time = (AC.cron_tick_passed(RETRY_AT) & ~IsPaused()).with_label("it is time to try again")
    may_be_tried = (~AC.execution_failed() | is_time).with_label("the last run did not fail, or it is time")
    must_wait: dg.AutomationCondition[Any] = (
        HangsOnStale()
        if is_looked_up
        else AC.any_deps_match(IsStale() & ~AC.will_be_requested()).with_label("an input is stale and waits itself")
    )
    # Last, because what was under way at the first question may be done at the second, and is not to be done again.
    return IsStale() & is_idle & may_be_tried & ~HangsOnWrong() & ~must_wait & IsStillStale()


def automated(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """The asset, following its inputs if it has any; without partitions of time it follows a clock or a sensor."""
    if not isinstance(asset.partitions_def, dg.TimeWindowPartitionsDefinition):
        return asset

    def condition(spec: dg.AssetSpec) -> dg.AutomationCondition[Any]:
        derived = GRAPH.get(spec.key.to_user_string())
        needs = derived.needs if derived else ()
        return follow_inputs(is_looked_up=any(need.by in LOOKED_UP for need in needs))

    return asset.map_asset_specs(
        lambda spec: spec.replace_attributes(automation_condition=condition(spec)) if list(spec.deps) else spec
    )


class RangeSensor(dg.AutomationConditionSensorDefinition):
    """Dagster's sensor of automation conditions, whose requests for neighbouring partitions are one run (O2).

    Dagster makes a run of each partition, a JVM each; or a backfill, which first waits for the daemon's next look at
    backfills, half a minute later.
    """

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> SensorExecutionData:
        """What is requested, in ranges."""
        data = super().evaluate_tick(context)
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
        # What is requested together has the same partitions.
        table = next(iter(assets or {check.asset_key for check in checks})).to_user_string()
        for keys in ranges_of(by_key, TABLES[table].grain):
            starts = range(0, len(keys), PARTITIONS_PER_RUN)
            parts = [keys[start : start + PARTITIONS_PER_RUN] for start in starts]
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
