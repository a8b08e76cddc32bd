"""Compaction of vectors: checkpoints, and the removal of payloads in an order that no crash can turn round (K4, K5).

Belongs here: the steps. The computations are in `assets/vectors`, the log's part in `tidemark/coordinator`.

1. Everything in the log is drained, and the removal is previewed: a cut that would remove nothing is not made.
2. The log refuses changes to vectors before the cut, by a control frame in every shard.
3. Deltas accepted before that are drained.
4. Due checkpoints are made, then a base of every vector that has deltas before the cut; the table is checked.
5. The payloads that bases hold are removed from `deltas`.

Without removal only the checkpoints of step 4 are made. When the command is repeated after a crash, it repeats each
step or finds it done. Producers may go on during all steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.ingest.schema import DELTAS
from assets.trust import found_wrong, repair_first
from assets.vectors.compacted import Compacted, KeptBack, Removed
from assets.vectors.compaction import foresee_removal, remove_payloads
from assets.vectors.new_deltas import all_files, buckets_in
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from orchestration.instance import open_instance
from orchestration.materialize import drain
from orchestration.runs import QUIET, Progress, RunResults, run
from resources.lake import Lake
from resources.platform import TidemarkResource
from tidemark.counts.windows import shown
from tidemark.gateway.control import writer
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import HOUR_US, floor_to
from tidemark.observe.status import read_cut, read_status
from tidemark.shard_state.clock_reset import refuse_doubtful
from tidemark.storage.failpoints import failpoint
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.plans import durable_epochs
from tidemark.vectors.checkpoints import CompactionRules, Strategy

if TYPE_CHECKING:
    from dagster import DagsterInstance


class CompactionError(TidemarkError):
    """The payloads must not be removed."""


@dataclass(frozen=True)
class Wanted:
    """What a compaction should do; a field that is None follows the home's settings."""

    strategy: Strategy | None = None
    horizon_us: int | None = None
    is_forced: bool = False
    is_removing: bool = False
    is_clock_right: bool = False  # the operator confirms the clock, although the last write is long ago


@dataclass(frozen=True)
class Compaction:
    """The result of a compaction; `outcome` is the work done for it."""

    cut_us: int | None = None  # in force in the log; None if it would remove nothing, or if that step was not reached
    considered_us: int | None = None  # the requested cut
    compacted: Compacted = field(default_factory=Compacted)
    removed: Removed = field(default_factory=Removed)
    outcome: RunResults = field(default_factory=RunResults)
    is_done: bool = True


def cut_of(home: Home, wanted: Wanted, now_us: int) -> int:
    """The hour before which payloads go: the horizon from now, and never before a cut that the log has already."""
    horizon_us = CompactionRules.from_settings(home.settings.compaction).horizon_us
    cut_us = floor_to(now_us - (horizon_us if wanted.horizon_us is None else wanted.horizon_us), HOUR_US)
    known = read_cut(home)
    return max(cut_us, known.cut_us) if known else cut_us


def compact(
    home: Home, wanted: Wanted, *, clock: Callable[[], int], progress: Progress | None = None, cut: "Cut | None" = None
) -> Compaction:
    """Make checkpoints and, if requested, remove payloads for ever.

    After a failed run nothing is removed: repair it, then repeat the command. `cut` makes the log refuse older changes;
    a program that has the home open passes its own, `platform.cut_vectors`. Removal is refused if the clock may be
    ahead.
    """
    if not wanted.is_removing:
        outcome, done = _checkpoints(home, wanted, None, progress)
        return Compaction(compacted=done, outcome=outcome, is_done=outcome.succeeded)
    now_us = clock()
    if not wanted.is_clock_right:
        refuse_doubtful(home, now_us)
    cut_us = cut_of(home, wanted, now_us)
    if cut is None:
        _seal(home, cut_us, clock)
    outcome = drain(home, progress=progress)
    if not outcome.succeeded:
        return Compaction(None, cut_us, outcome=outcome, is_done=False)
    _refuse_wrong(home, cut_us)
    going, kept_back = _foresee(home, cut_us)
    if not going:
        made, done = _checkpoints(home, wanted, None, progress)
        removed = Removed(kept_back=kept_back)
        return Compaction(None, cut_us, done, removed, outcome + made, is_done=made.succeeded)
    _cut_log(home, cut_us, clock, cut)
    failpoint("compact.cut")
    return _remove_before(home, wanted, cut_us, outcome, progress)


# Makes every shard's log refuse changes to vectors before a time; returns when that is on the disk.
Cut = Callable[[int], None]


@dg.op
def remove_covered_payloads(context: dg.OpExecutionContext, tidemark: TidemarkResource) -> Removed:
    """Remove the payloads that bases hold, and record what that has saved."""
    removed = remove_payloads(tidemark.lake)
    failpoint("compact.removed")
    context.log_event(dg.AssetObservation(DELTAS.name, metadata=removed.to_metadata()))
    return removed


@dg.job(
    executor_def=dg.in_process_executor,
    description="Remove payloads of vector deltas that a base holds; './tidemark compact --remove' does all that is "
    "needed before.",
)
def remove_payloads_job() -> None:
    """One step: it is safe at any time, because only what a base holds is removed."""
    remove_covered_payloads()


def _remove_before(
    home: Home, wanted: Wanted, cut_us: int, outcome: RunResults, progress: Progress | None
) -> Compaction:
    """Remove payloads before the cut; the log must refuse older changes by now."""
    outcome += drain(home, progress=progress)
    if outcome.succeeded:
        _refuse_undrained(home)
        _refuse_wrong(home, cut_us)
        made, done = _checkpoints(home, wanted, cut_us, progress)
        outcome += made
        if outcome.succeeded:
            failpoint("compact.judged")
            return Compaction(cut_us, cut_us, done, _remove(home), outcome)
    return Compaction(cut_us, cut_us, outcome=outcome, is_done=False)


def _seal(home: Home, cut_us: int, clock: Callable[[], int]) -> None:
    """Seal the log that an earlier process left.

    If the log has the cut already, this is not needed, and a producer may have the home open.
    """
    known = read_cut(home)
    is_cut = known is not None and known.cut_us >= cut_us
    if not is_cut and any(shard.log_bytes for shard in read_status(home)):
        with writer(home, clock) as log:
            log.seal()


def _foresee(home: Home, cut_us: int) -> tuple[int, KeptBack]:
    from orchestration.build import default_resources

    resources = default_resources(home)
    return foresee_removal(Lake(home, lambda: resources["spark"].spark_session), cut_us)


def _cut_log(home: Home, cut_us: int, clock: Callable[[], int], cut: Cut | None) -> None:
    known = read_cut(home)
    if known is not None and known.cut_us >= cut_us:
        return
    if cut is not None:
        cut(cut_us)
        return
    with writer(home, clock) as log:
        log.cut_vectors(cut_us)
        log.seal()


def _checkpoints(
    home: Home, wanted: Wanted, cut_us: int | None, progress: Progress | None
) -> tuple[RunResults, Compacted]:
    """Checkpoints in every bucket that has vectors; the run finds out which of them are due.

    A bucket of `vectors` that failed its check is left alone until it is repaired.
    """
    config: dict[str, Any] = {"force": wanted.is_forced}
    config |= {"strategy": wanted.strategy.value} if wanted.strategy else {}
    config |= {"cut_us": cut_us} if cut_us is not None else {}
    table = VECTOR_CHECKPOINTS.name
    with open_instance(home) as instance:
        wrong = found_wrong(home, instance, VECTORS.name)
        keys = [VECTOR_CHECKPOINTS.grain.key(bucket) for bucket in _buckets_with_vectors(home)]
        held = tuple(key for key in keys if key in wrong)
        outcome = RunResults(held_back={table: held} if held else None)
        buckets = tuple(key for key in keys if key not in wrong)
        if not buckets:
            return outcome, Compacted()
        made = run(home, instance, [table], buckets, progress, config=config)
        return outcome + RunResults((made,)), Compacted.of_run(instance, made.run_id) if made.succeeded else Compacted()


def _buckets_with_vectors(home: Home) -> list[int]:
    state = lake_files.readable_state(home.lake / DELTAS.name)
    lying = lake_files.partitions(home.lake / VECTOR_CHECKPOINTS.name)
    found = {bucket % VECTOR_CHECKPOINTS.buckets for bucket in lying}
    return sorted(found | (buckets_in(all_files(home, state.version)) if state else set()))


def _remove(home: Home) -> Removed:
    from orchestration.build import default_resources

    with open_instance(home) as instance:
        result = remove_payloads_job.execute_in_process(
            instance=instance, resources={"tidemark": default_resources(home)["tidemark"]}, run_config=QUIET
        )
    removed: Removed = result.output_for_node(remove_covered_payloads.name)
    return removed


def _refuse_undrained(home: Home) -> None:
    """Deltas accepted before older changes were refused must be in the tables before a base is made."""
    cut = read_cut(home)
    if cut is None or not cut.is_settled(durable_epochs(home)):
        raise CompactionError(
            "Changes that were taken before the log was cut are not in the tables yet, because they are not sealed. "
            "Nothing was removed; older changes are refused already. Repeat the command when they are sealed."
        )


def _refuse_wrong(home: Home, cut_us: int) -> None:
    """Remove nothing from partitions that failed or were not checked: afterwards no check is possible."""
    with open_instance(home) as instance:
        wrong = sorted(key for key in _wrong_hours(home, instance) if DELTAS.grain.start(key) < cut_us)
    if wrong:
        raise CompactionError(repair_first(DELTAS.name, wrong, shown(cut_us)))


def _wrong_hours(home: Home, instance: "DagsterInstance") -> set[str]:
    hours = {DELTAS.grain.key(start) for start in lake_files.partitions(home.lake / DELTAS.name)}
    return found_wrong(home, instance, DELTAS.name) & hours
