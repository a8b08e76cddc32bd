"""The drain: all new segments into `deltas` and `dead_letters`, in one commit each, exactly once (decision 0052).

Belongs here: making a plan and carrying it out. It needs a lake and a log, and no orchestrator. A crash may come after
any step: the next call finds the same plan and finishes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow.compute as pc

from assets.ingest.duplicates import find_duplicates
from assets.ingest.prefilter import Segment, prefilter
from assets.ingest.rebuild import (
    committed_number,
    plan_store,
    read_log,
    remove_scratch,
    scratch,
    settle_ingest,
)
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.ingest.transform import accepted_deltas
from resources.lake import Lake
from tidemark.event_time.clock import system_clock
from tidemark.log.manifest import Entry
from tidemark.model.deltas import Verdict
from tidemark.observe.sealed_log import Log, TouchedHours, touched_hours
from tidemark.storage.failpoints import failpoint
from tidemark.tables import lake_files
from tidemark.tables.known_table import find_break
from tidemark.tables.plans import Plan, PlannedSegment, PlanStore

# A commit of this many rows fits a small machine; the next plan takes the rest.
ROWS_PER_PLAN = 20_000_000


@dataclass(frozen=True)
class DrainResult:
    """What a call has done; `plan` is None when there was nothing to do."""

    plan: Plan | None = None
    touched: TouchedHours = field(default_factory=TouchedHours)
    accepted: int = 0  # rows, as the log decided
    refused: int = 0
    copies: int = 0  # of the accepted ones: duplicates, because the same identity was there before
    noticed: dict[str, str] = field(default_factory=dict)  # table → why it was rebuilt under a new generation
    is_last: bool = True  # whether every sealed segment is drained now

    @property
    def number(self) -> int:
        """Number of the plan; 0 when there was nothing to do."""
        return self.plan.number if self.plan else 0


def drain(lake: Lake, *, rows_per_plan: int = ROWS_PER_PLAN) -> DrainResult:
    """Carry out the next plan: the one a crash left behind, or a new one over the segments sealed since."""
    with lake.lock(DELTAS.name), lake.lock(DEAD_LETTERS.name):
        remove_scratch(lake.home)
        if not _is_anything_to_do(lake):
            return DrainResult()
        noticed = settle_ingest(lake)
        log, store, number = Log(lake.home), plan_store(lake), committed_number(lake, DELTAS)
        last = store.committed(number)
        if last:
            _refuse_unless_planned(log, last)
        upto = last.upto if last else {}
        plan = store.find(number + 1) or _make_plan(store, number + 1, log.by_age(upto), upto, rows_per_plan)
        if plan is None:
            return DrainResult(noticed=noticed)
        return _carry_out(lake, log, plan, noticed)


def drain_all(lake: Lake) -> list[DrainResult]:
    """Drain until all sealed segments are in the lake; one result per plan, at least one."""
    results = [drain(lake)]
    while not results[-1].is_last:
        results.append(drain(lake))
    return results


def _is_anything_to_do(lake: Lake) -> bool:
    """Whether the tables or the log have changed since the last drain; needs no JVM."""
    for spec in (DELTAS, DEAD_LETTERS):
        known = lake.known(spec.name)
        if known.version < 0 or known.opening or find_break(lake.path(spec.name), known):
            return True
    store, number = plan_store(lake), committed_number(lake, DELTAS)
    last = store.committed(number)
    log = Log(lake.home)
    if last:
        _refuse_unless_planned(log, last)
    return store.find(number + 1) is not None or log.has_beyond(last.upto if last else {})


def _refuse_unless_planned(log: Log, last: Plan) -> None:
    """Raise unless the table still holds what the manifest names."""
    for _ in log.entries_of(last):
        pass
    log.refuse_unless_reaching(last.upto)


def _make_plan(
    store: PlanStore, number: int, entries: Iterable[Entry], upto: dict[int, int], rows_per_plan: int
) -> Plan | None:
    """Fix what the next commit contains: whole segments, in the order of `entries`, up to a number of rows."""
    chosen: list[Entry] = []
    rows = 0
    for entry in entries:
        if chosen and rows + entry.rows > rows_per_plan:
            break
        chosen.append(entry)
        rows += entry.rows
    if not chosen:
        return None
    ends = {entry.shard: max(each.to_epoch for each in chosen if each.shard == entry.shard) for entry in chosen}
    plan = Plan(
        number=number,
        generation=store.generation,
        ranges={shard: (upto.get(shard, 1), end) for shard, end in sorted(ends.items())},
        segments=[PlannedSegment(entry.shard, entry.number, entry.file, entry.sha256, entry.bytes) for entry in chosen],
        upto={**upto, **ends},
        created_us=system_clock(),
    )
    store.write(plan)
    failpoint("plan.written")
    return plan


def _carry_out(lake: Lake, log: Log, plan: Plan, noticed: dict[str, str]) -> DrainResult:
    """Commit a plan: dead letters first, so that every delta is always in one of the two tables."""
    entries = list(log.entries_of(plan))
    segments = [Segment(entry, path) for entry, path in zip(entries, log.verify(entries), strict=True)]
    touched = touched_hours(entries)
    with scratch(lake) as directory:
        # Duplicates share the event hour: an hour that the table has no rows for needs no comparison.
        present = lake_files.partitions(lake.path(DELTAS.name))
        hours = sorted(touched.event & present.keys())
        known_files = [file for hour in hours for file in present[hour].files]
        aside = prefilter(segments, known_files=known_files, target=directory / "aside.parquet")
        duplicates = find_duplicates(lake.spark, aside, known_files=known_files)
        if committed_number(lake, DEAD_LETTERS) < plan.number:
            lake.append_once(DEAD_LETTERS, duplicates.letters, number=plan.number)
        failpoint("dead_letters.committed")
        deltas = accepted_deltas(read_log(lake, [segment.path for segment in segments]))
        lake.append_once(DELTAS, duplicates.drop_copies(deltas), number=plan.number)
        failpoint("deltas.committed")
    return DrainResult(
        plan=plan,
        touched=touched,
        accepted=sum(entry.verdicts.accepted for entry in entries),
        refused=sum(entry.verdicts.refused for entry in entries),
        copies=_copies_of(lake, plan) if duplicates.suspects else 0,
        noticed=noticed,
        is_last=not log.has_beyond(plan.upto),
    )


def _copies_of(lake: Lake, plan: Plan) -> int:
    """How many deltas of the plan were accepted by the log and are in the dead letters."""
    table = lake_files.open_table(lake.path(DEAD_LETTERS.name))
    if table is None:
        return 0
    of_plan = pc.scalar(False)
    for shard, (first, end) in plan.ranges.items():
        of_plan |= (pc.field("shard") == shard) & (pc.field("epoch") >= first) & (pc.field("epoch") < end)
    is_copy = pc.field("verdict") == Verdict.ACCEPTED.value
    return int(table.to_pyarrow_dataset().count_rows(filter=of_plan & is_copy))
