"""`refresh`: what is behind its inputs, of all tables that are made partition by partition, in one step.

Belongs here: the order of tables, which of their partitions are due, and going on when one of them fails. A run for
each table, or for each kind of partition, would cost seconds before its first row; and an hour, its day and its month
are partitions of different kinds, which the orchestrator does not put into one run. So this step has no partitions: it
reports each partition that it makes, with its record and its check, as the drain does for `deltas`. Does not belong
here: what is behind (`stale.py`), what may be built upon (`trust.py`), how a table is made (`table_asset.py`).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import dagster as dg
from pydantic import Field

from assets.as_seen import REFRESHED, STATE_TAG, state_of
from assets.graph import Derived
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.metadata import KINDS, OWNERS
from assets.names import HELD_BACK
from assets.partitions import existing
from assets.requested import report_now
from assets.stale import stale_partitions
from assets.table_asset import TableAsset
from assets.trust import blocked, edited, failed, unchecked, unfinished
from resources.lake import Lake, LakeError
from resources.platform import TidemarkResource
from resources.record import Record
from resources.seen_records import SeenRecords
from tidemark.model.errors import StoppedError
from tidemark.model.ranges import contiguous
from tidemark.model.timegrid import Grain

REFRESH = "refresh"
# A week of hours in one Spark job: more would not make it cheaper, and a crash undoes minutes of work.
PARTITIONS_TOGETHER = 168
# Of a table, until the rest is given up: enough to find one bad partition among those made together, by halves, and few
# enough to end soon where every one of them fails.
FAILURES = 12

# What a drain makes and checks.
FROM_THE_LOG = (DELTAS.name, DEAD_LETTERS.name)

# Called with partitions of a table that were made just now; it reports a check result for each.
CheckPartitions = Callable[[dg.AssetExecutionContext, Lake, str, Sequence[str | None]], None]


class RefreshError(LakeError):
    """Some tables could not be refreshed; the others were."""


class RefreshConfig(dg.Config):
    """The options of a refresh."""

    now_us: int = Field(
        default=0,
        description="The present, in microseconds since 1970: partitions after it wait. By default, the clock.",
    )
    tables: list[str] = Field(default=[], description="Only these tables; by default, all.")
    before_us: int | None = Field(
        default=None, description="Only partitions that begin before this, in microseconds since 1970."
    )
    repairs: bool = Field(
        default=True,
        description="Whether partitions that failed their check are made again, though nothing they are made from has "
        "changed. The daemon does not: it would find the same, after every drain.",
    )


def refresh_asset(tables: Iterable[TableAsset], check: CheckPartitions) -> dg.AssetsDefinition:
    """`refresh`, for these tables; `check` checks what it has made."""
    by_name = {table.derived.spec.name: table for table in tables}
    # Each after its inputs.
    ordered = [by_name[name] for name in REFRESHED if name in by_name]

    @dg.asset(
        name=REFRESH,
        deps=["drain"],
        group_name="ingest",
        kinds=KINDS,
        owners=OWNERS,
        description="Every partition that is behind what it is made from, table by table, each with its check.",
    )
    def refresh(
        context: dg.AssetExecutionContext, config: RefreshConfig, tidemark: TidemarkResource
    ) -> dg.MaterializeResult[None]:
        """Make what is stale, until nothing is."""
        work = _Refresh(context, tidemark, check, config)
        work.run([table for table in ordered if not config.tables or table.derived.spec.name in config.tables])
        context.instance.add_run_tags(context.run.run_id, {STATE_TAG: work.state})
        if work.errors:
            raise RefreshError(
                f"{len(work.errors)} table(s) could not be refreshed, and the others were. "
                + " ".join(f"{table}: {why}" for table, why in work.errors.items())
            )
        return dg.MaterializeResult(
            metadata={
                "partitions": sum(map(len, work.made.values())),
                "tables": dg.MetadataValue.json({table: sorted(keys) for table, keys in work.made.items()}),
                HELD_BACK: dg.MetadataValue.json({table: held for table, held in work.held.items() if held}),
            }
        )

    return refresh


class _Refresh:
    """One refresh: what it has made, what it holds back, and what went wrong."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        tidemark: TidemarkResource,
        check: CheckPartitions,
        config: RefreshConfig,
    ) -> None:
        self._context, self._tidemark, self._check = context, tidemark, check
        self._now_us, self._before_us = config.now_us or tidemark.now_us(), config.before_us
        self._repairs = config.repairs
        self._seen = SeenRecords(tidemark.home, context.instance)
        self._tried: set[tuple[str, tuple[str, ...]]] = set()
        self._unfinished: dict[str, set[str]] = {}
        self._failed: dict[str, set[str]] = defaultdict(set)
        self.state = ""  # the tables in the last round, which found nothing more to do
        self.made: dict[str, set[str]] = defaultdict(set)
        self.held: dict[str, dict[str, str]] = {}
        self.errors: dict[str, str] = {}

    def run(self, tables: Sequence[TableAsset]) -> None:
        """Round after round: what an hour passes on to the next is known only when the hour was made."""
        while True:
            self.state = state_of(self._tidemark.home, self._context.instance)
            stale = stale_partitions(self._context.instance, self._tidemark.home, seen=self._seen)
            before = len(self._tried)
            if not self._unfinished:  # asked once: what is checked later is what is made here
                self._unfinished = self._left_unfinished([table.derived.spec.name for table in tables])
            for table in tables:
                self._refresh(table, stale.get(table.derived.spec.name, {}))
            if len(self._tried) == before:
                return

    def _left_unfinished(self, tables: Sequence[str]) -> dict[str, set[str]]:
        """Partitions that have not passed a check, by table.

        Hours of the log that have no result yet are left to drains: one that runs beside this checks what it has
        brought in, and each checks what an earlier one has left. Written anew meanwhile, they would be checked twice,
        and the later result would be about rows that are gone: nothing would be built on them until the next drain.
        """
        home, instance, lake = self._tidemark.home, self._context.instance, self._tidemark.lake
        others = [table for table in tables if table not in FROM_THE_LOG]
        found = {table: set[str]() for table in tables}
        found |= unfinished(home, instance, others, is_failed_too=self._repairs)
        for table in set(FROM_THE_LOG).intersection(tables) if self._repairs else ():
            found[table] = failed(instance, table) - unchecked(instance, table) - edited(lake, table).keys()
        return found

    def _refresh(self, table: TableAsset, stale: Iterable[str]) -> None:
        """Make what may be made of a table; where partitions fail together, by halves, so that one fails alone."""
        name, derived, failures = table.derived.spec.name, table.derived, 0
        good = self._good(derived, stale)
        waiting = deque(near_one_another(good, derived.spec.grain, takes_gaps=table.takes_gaps))
        while waiting:
            part = waiting.popleft()
            if (name, part) in self._tried:
                continue
            self._tried.add((name, part))
            try:
                self._make(table, part)
            except StoppedError:
                raise
            except Exception as error:
                # A table that fails must not stop those that are not made from it; what failed is raised at the end.
                failures += 1
                self._context.log.exception("%s could not be refreshed: %s", name, ", ".join(part))
                # What is carried from one partition to the next is not made beyond one that failed.
                if len(part) > 1 and not derived.is_carried and failures < FAILURES:
                    middle = len(part) // 2
                    waiting.extendleft((part[middle:], part[:middle]))
                    continue
                self.errors[name] = " ".join(str(error).split()) or type(error).__name__
                self._failed[name] |= set(part)
                self.held[name] |= dict.fromkeys(part, "it failed")

    def _make(self, table: TableAsset, part: Sequence[str]) -> None:
        spec = table.derived.spec
        self._context.log.info("computing %s: %s", spec.name, ", ".join(part))
        windows = contiguous(map(spec.grain.start, part), spec.grain)
        records = table.write(self._context, self._tidemark, windows, self._report)
        keys = {record.partition for record in records if record.partition}
        if table.derived.is_carried:
            keys |= unchecked(self._context.instance, spec.name)
        self.made[spec.name] |= keys
        self._check(self._context, self._tidemark.lake, spec.name, sorted(keys))

    def _good(self, derived: Derived, stale: Iterable[str]) -> list[str]:
        """The stale partitions that may be made now, and those that have not passed a check since they were made."""
        name, home, instance = derived.spec.name, self._tidemark.home, self._context.instance
        # What was made here and did not pass is not tried again at once: it would not pass then either.
        due = {*stale, *(self._unfinished[name] - self.made[name])} - self._failed[name]
        grain = derived.spec.grain
        due = {key for key in due if is_before(grain, key, self._before_us)}
        wanted = existing(home.settings, grain, due, self._now_us)
        held = dict.fromkeys(self._failed[name], "it failed")
        if wanted:
            waiting = {each: self.held.get(each, ()) for each in derived.inputs}
            held |= blocked(home, instance, derived, wanted, waiting=waiting)
        self.held[name] = dict(sorted(held.items()))
        return [key for key in wanted if key not in held]

    def _report(self, records: Iterable[Record]) -> None:
        for record in records:
            report_now(self._context, record)


def near_one_another(keys: Iterable[str], grain: Grain, *, takes_gaps: bool = False) -> Iterator[tuple[str, ...]]:
    """Partitions that are made together: at most a week of hours, from the first to the last if gaps cost something."""
    together: list[str] = []
    for key in sorted(keys):
        span = (
            len(together)
            if takes_gaps or not together
            else len(grain.starts(grain.start(together[0]), grain.start(key)))
        )
        if span >= PARTITIONS_TOGETHER:
            yield tuple(together)
            together = []
        together.append(key)
    if together:
        yield tuple(together)


def is_before(grain: Grain, key: str, before_us: int | None) -> bool:
    """Whether a partition begins before a time; None stands for no bound."""
    return before_us is None or grain.start(key) < before_us
