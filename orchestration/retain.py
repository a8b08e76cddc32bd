"""Retention of the rollups: old minutes, hours and days go, in an order that no crash can turn round (R5).

Belongs here: the steps. Pure functions in `tidemark/counts/retention.py` decide what may be dropped.

1. The log refuses older events, by a control frame in every shard: the partitions to drop can no longer change.
2. Deltas accepted before that are drained, and the rollups of that time are brought up to date: the kept tiers miss
   nothing. What is stale elsewhere has no part in this.
3. The decision is written to a file: from here on these partitions are neither read nor computed again.
4. The partitions are dropped, finest tier first.

When the command is repeated after a crash, it repeats each step or finds it done.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from assets.rollups.schema import COUNTS
from assets.trust import found_wrong, repair_first
from orchestration.instance import open_instance
from orchestration.materialize import drain, materialize_everything_stale
from orchestration.runs import Progress, RunResults
from resources.lake import Lake
from tidemark.counts.decay import HalfLife, half_life
from tidemark.counts.retention import (
    CUT_AT,
    Cuts,
    RetentionError,
    decide_cuts,
    dropped_before,
    gone_before,
    remember,
    to_be_dropped,
)
from tidemark.counts.tables import Tables
from tidemark.counts.windows import shown
from tidemark.gateway.control import writer
from tidemark.observe.status import read_raised, read_status
from tidemark.shard_state.clock_reset import read_times, refuse_doubtful
from tidemark.storage.failpoints import failpoint
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.plans import durable_epochs
from tidemark.tables.tiers import Tier

# What may be dropped, finest first.
DROPPED = {tier: COUNTS[tier] for tier in CUT_AT}


@dataclass(frozen=True)
class Dropping:
    """The partitions to drop from one table."""

    table: str
    before_us: int
    partitions: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Retained:
    """The result of a retention; `outcome` is the work done before it."""

    cuts: Cuts
    dropped: tuple[Dropping, ...]
    outcome: RunResults = field(default_factory=RunResults)
    is_done: bool = True


def plan_retention(home: Home, wanted: Mapping[Tier, int], *, now_us: int) -> Retained:
    """What would be dropped; nothing is changed. Raises for partitions that must not be dropped."""
    cuts = decide_cuts(wanted, gone_before(home), now_us, half_lives_of(home))
    return Retained(cuts, tuple(_droppings(home, cuts)), is_done=False)


def retain(
    home: Home,
    wanted: Mapping[Tier, int],
    *,
    clock: Callable[[], int],
    progress: Progress | None = None,
    is_clock_right: bool = False,
) -> Retained:
    """Drop partitions for ever. After a failed run nothing is dropped: repair it, then repeat the command.

    Refused if only a clock that may be wrong says that they may go, unless the caller confirms the clock.
    """
    now_us = clock()
    planned = plan_retention(home, wanted, now_us=now_us)
    if not planned.cuts:
        return planned
    if not is_clock_right:
        _refuse_young(home, wanted, now_us)
    raise_earliest(home, max(planned.cuts.values()), clock)
    failpoint("retain.raised")
    flushed = {shard.shard: shard.flushed_epoch for shard in read_status(home)}
    outcome = drain(home, progress=progress) + _keep_up(home, max(planned.cuts.values()), progress, clock)
    if not outcome.succeeded:
        return Retained(gone_before(home), (), outcome, is_done=False)
    _refuse_undrained(home, flushed)
    _refuse_wrong(home, planned.cuts)
    return Retained(planned.cuts, drop_settled(home, planned.cuts, clock), outcome)


def drop_settled(home: Home, cuts: Cuts, clock: Callable[[], int]) -> tuple[Dropping, ...]:
    """Decide, then drop; refused if anything of it is not in what is kept. The log must refuse older events by now."""
    _refuse_unsettled(home, cuts)
    dropped = tuple(_droppings(home, cuts))
    remember(home, cuts)
    failpoint("retain.decided")
    lake, before = Lake(home, clock=clock), dropped_before(home)
    for tier, spec in DROPPED.items():
        if tier in cuts:
            lake.drop(spec, before[tier])
            failpoint("retain.dropped")
    return dropped


def _keep_up(home: Home, before_us: int, progress: Progress | None, clock: Callable[[], int]) -> RunResults:
    """Bring the counts up to date that hold something of what is dropped; the rest is stale as well as it was."""
    tables = [spec.name for spec in COUNTS.values()]
    return materialize_everything_stale(home, progress=progress, clock=clock, tables=tables, before_us=before_us)


def raise_earliest(home: Home, earliest_us: int, clock: Callable[[], int]) -> None:
    """Make every shard's log refuse older events, unless it does already; returns when that is on the disk."""
    raised_us = read_raised(home)
    if raised_us is not None and raised_us >= earliest_us:
        return
    with writer(home, clock) as log:
        log.raise_earliest(earliest_us)
        log.seal()


def half_lives_of(home: Home) -> list[HalfLife]:
    """The half-lives that scores are computed for."""
    return [half_life(name) for name in home.settings.counts.half_lives]


def _droppings(home: Home, cuts: Cuts) -> list[Dropping]:
    found = []
    for tier, before_us in to_be_dropped(cuts, dropped_before(home)).items():
        partitions = lake_files.partitions(home.lake / tier.table)
        old = [files for start, files in partitions.items() if start < before_us]
        rows, size = sum(files.rows for files in old), sum(files.bytes for files in old)
        found.append(Dropping(tier.table, before_us, len(old), rows, size))
    return found


def _refuse_young(home: Home, wanted: Mapping[Tier, int], now_us: int) -> None:
    """What may go by the time of the last write may go by any clock; more than that needs one beyond doubt (C15)."""
    last_us = max((time.received_us for time in read_times(home)), default=0)
    try:
        plan_retention(home, wanted, now_us=min(now_us, last_us))
    except RetentionError:
        refuse_doubtful(home, now_us)


def _refuse_undrained(home: Home, flushed: Mapping[int, int]) -> None:
    """Deltas accepted before older events were refused must be counted before anything is dropped."""
    durable = durable_epochs(home)
    for shard, epoch in flushed.items():
        if durable.get(shard, 0) < epoch:
            raise RetentionError(
                f"Shard {shard} has taken writes up to epoch {epoch}, and those after epoch {durable.get(shard, 0)} "
                "are not in the tables yet, because they are not sealed. Nothing was dropped; older events are refused "
                "already. Repeat the command when they are sealed, or stop the producer first."
            )


def _refuse_wrong(home: Home, cuts: Cuts) -> None:
    """Drop nothing below partitions that failed or were not checked: afterwards no check is possible."""
    gone, dropped = gone_before(home), dropped_before(home)
    with open_instance(home) as instance:
        for tier, cut_us in cuts.items():
            for each in (tier, *tier.made_of_it):
                spec, done = COUNTS[each], gone if each.is_trailing else dropped
                starts = {spec.grain.start(key): key for key in found_wrong(home, instance, spec.name)}
                wrong = sorted(key for start, key in starts.items() if done.get(tier, start) <= start < cut_us)
                if wrong:
                    raise RetentionError(repair_first(spec.name, wrong, shown(cut_us)))


def _refuse_unsettled(home: Home, cuts: Cuts) -> None:
    """The kept tiers must contain what is dropped: the next coarser bucket is the sum of all its deltas."""
    dropped = dropped_before(home)
    tables = Tables(home, gone_before(home), dropped_before=dropped, tiers=tuple(Tier))
    for tier, cut_us in cuts.items():
        for coarser in tier.made_of_it:
            # Hours that an earlier version dropped are missing from tiers that did not exist then, and cannot be added
            # any more.
            lost_us = None if coarser.is_trailing else dropped.get(tier)
            behind = sorted(
                start
                for start in tables.behind[coarser]
                if start < coarser.floor(cut_us) and (lost_us is None or start >= lost_us)
            )
            if behind:
                raise RetentionError(
                    f"{len(behind)} {coarser}(s) before {shown(cut_us)} are not known to be the sum of their deltas, "
                    f"the first of them {shown(behind[0])}. Nothing was dropped; compute them first: "
                    "./tidemark backfill."
                )
