"""What the command line and the demo ask for: a drain, hours of some assets, everything that is stale, checks again.

Belongs here: which runs are needed for what was asked, and which partitions are held back. Does not belong here: how a
run is started (`runs.py`), what it does (`assets`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from assets.rollups.schema import INPUTS
from assets.tables import TABLES
from orchestration.instance import open_instance
from orchestration.runs import Outcome, Progress, Step, ranges_of, run
from resources.errors import TidemarkError
from resources.home import Home
from resources.lake import Lake
from resources.timegrid import DAY, HOUR, HOUR_US, WEEK, Grain, floor_to, hour_key, hour_start

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from pyspark.sql import SparkSession

DRAIN = "drain"
# The assets that have partitions, by what a partition is; in the order in which they follow one another.
PARTITIONED = {
    grain: tuple(spec.name for spec in TABLES.values() if spec.grain is grain) for grain in (HOUR, DAY, WEEK)
}
PARTITIONED_ASSETS = tuple(name for names in PARTITIONED.values() for name in names)

# A week of hours in a run: a month is a handful of runs, and what a crash undoes is minutes of work.
PARTITIONS_PER_RUN = 168
BACKFILL_TAG, PART_TAG = "tidemark/backfill", "tidemark/part"

# What is asked for, or a run of it: assets, all of one grain, and their partitions.
Part = tuple[tuple[str, ...], tuple[str, ...]]


class UnknownAssetError(TidemarkError):
    """Something is to be materialized that is not an asset with partitions."""


def drain(home: Home, *, progress: Progress | None = None) -> Outcome:
    """Drain all sealed segments and judge the hours that they touched."""
    with open_instance(home) as instance:
        return Outcome((run(home, instance, [DRAIN], (), progress),))


def materialize_hours(
    home: Home,
    assets: Sequence[str],
    hours: Iterable[str],
    *,
    progress: Progress | None = None,
    is_resumed: bool = False,
) -> Outcome:
    """Materialize hours of assets, and the days and weeks that hold them where an asset is daily or weekly.

    Unbroken ranges of hours, at most a week of them in a run with all hourly assets in it; then days, then weeks. What
    hangs on a partition that was found wrong is held back. With `is_resumed`, parts that an interrupted request for the
    same has finished are not done again.
    """
    _refuse_unknown(assets)
    starts = {hour_start(key) for key in hours}
    wanted = [
        (tuple(name for name in names if name in assets), _keys(grain, starts)) for grain, names in PARTITIONED.items()
    ]
    with open_instance(home) as instance:
        request = _Request(home, instance, wanted, progress)
        finished = request.finished_parts() if is_resumed else set()
        held_back: dict[str, set[str]] = defaultdict(set)
        outcome = Outcome(resumed=len(finished))
        for number, (names, part) in enumerate(request.parts, start=1):
            if number in finished:
                continue
            wrong = _wrong_inputs(home, instance, names, part, held_back)
            held_back[names[0]] |= wrong
            good = ranges_of((key for key in part if key not in wrong), TABLES[names[0]].grain)
            for each in good:
                outcome += request.run(number, names, each, is_end=each is good[-1])
        return outcome + _held(held_back)


def materialize_everything_stale(home: Home, *, progress: Progress | None = None) -> Outcome:
    """Bring every rollup up to date: exactly the partitions that are behind, unless their input was found wrong."""
    from assets.rollups.stale import stale_partitions

    with open_instance(home) as instance:
        outcome, held_back = Outcome(), defaultdict[str, set[str]](set)
        for names in PARTITIONED.values():
            # Asked anew for each grain: only what was made is an input of what follows.
            stale = stale_partitions(instance, home)
            wanted: dict[tuple[str, ...], list[str]] = defaultdict(list)
            for key in sorted({key for name in names for key in stale.get(name, {})}):
                wanted[tuple(name for name in names if key in stale.get(name, {}))].append(key)
            for together, keys in wanted.items():
                outcome += _run_good(home, instance, together, keys, held_back, progress)
        return outcome + _held(held_back)


def check_hours(
    home: Home, tables: Sequence[str], hours: Iterable[str], *, progress: Progress | None = None
) -> Outcome:
    """Run the suites of tables again on hours (days, weeks) that were materialized; only verdicts are written."""
    from resources.record import Record

    _refuse_unknown(tables)
    starts = {hour_start(key) for key in hours}
    outcome = Outcome()
    with open_instance(home) as instance:
        for table in tables:
            grain = TABLES[table].grain
            known = Record.latest_by_partition(instance, table, _keys(grain, starts))
            for part in ranges_of(known, grain):
                outcome += Outcome((run(home, instance, [table], part, progress, is_check=True),))
    return outcome


def hours_between(first: str, last: str) -> list[str]:
    """Keys of all hours from the first to the last, both of them in it."""
    return [hour_key(start) for start in range(floor_to(hour_start(first), HOUR_US), hour_start(last) + 1, HOUR_US)]


def _keys(grain: Grain, starts: Iterable[int]) -> list[str]:
    """Keys of the partitions that hold these moments."""
    return sorted({grain.key(start) for start in starts})


class _Request:
    """A request as numbered parts, each a run; the runs' tags say which were finished."""

    def __init__(
        self,
        home: Home,
        instance: "DagsterInstance",
        wanted: Sequence[tuple[tuple[str, ...], Sequence[str]]],
        progress: Progress | None,
    ) -> None:
        self._home, self._instance, self._progress = home, instance, progress
        self.parts = list(_parts(wanted))
        self._id = hashlib.sha256(repr(self.parts).encode()).hexdigest()[:16]

    def finished_parts(self) -> set[int]:
        """Numbers of the parts that the last request for the same had finished, unless it finished all of them."""
        from dagster import DagsterRunStatus, RunsFilter

        found: set[int] = set()
        runs = RunsFilter(tags={BACKFILL_TAG: self._id}, statuses=[DagsterRunStatus.SUCCESS])
        for each in self._instance.get_runs(runs):
            number = int(each.tags[PART_TAG])
            if number == len(self.parts):
                break
            found.add(number)
        return found

    def run(self, number: int, names: tuple[str, ...], keys: tuple[str, ...], *, is_end: bool) -> Outcome:
        """One part, or a range of it; the last of them says that the part is finished."""
        tags = {BACKFILL_TAG: self._id, PART_TAG: str(number)} if is_end else {}
        return Outcome((run(self._home, self._instance, names, keys, self._tell(number), tags=tags),))

    def _tell(self, number: int) -> Progress | None:
        told = self._progress
        if told is None:
            return None
        return lambda step: told(Step(step.asset, step.is_check, step.partitions, number, len(self.parts)))


def _parts(wanted: Sequence[tuple[tuple[str, ...], Sequence[str]]]) -> Iterator[Part]:
    for names, keys in wanted:
        for each in ranges_of(keys, TABLES[names[0]].grain) if names else ():
            for start in range(0, len(each), PARTITIONS_PER_RUN):
                yield names, each[start : start + PARTITIONS_PER_RUN]


def _refuse_unknown(assets: Sequence[str]) -> None:
    unknown = sorted(set(assets) - {*PARTITIONED_ASSETS})
    if unknown:
        known = ", ".join(PARTITIONED_ASSETS)
        raise UnknownAssetError(f"There is no partitioned asset {unknown[0]!r}. The assets are {known}.")


def _run_good(
    home: Home,
    instance: "DagsterInstance",
    names: tuple[str, ...],
    keys: Sequence[str],
    held_back: dict[str, set[str]],
    progress: Progress | None,
) -> Outcome:
    """Run what does not hang on a wrong partition, and note what does."""
    wrong = _wrong_inputs(home, instance, names, keys, held_back)
    held_back[names[0]] |= wrong
    good = ranges_of((key for key in keys if key not in wrong), TABLES[names[0]].grain)
    return Outcome(tuple(run(home, instance, names, part, progress) for part in good))


def _wrong_inputs(
    home: Home,
    instance: "DagsterInstance",
    names: tuple[str, ...],
    keys: Sequence[str],
    held_back: dict[str, set[str]],
) -> set[str]:
    """Which of the partitions hang on one that was found wrong, or that was itself held back."""
    rollups = [name for name in names if name in INPUTS]
    if not rollups or INPUTS[rollups[0]] in names:
        return set()  # a rebuild repairs; what follows in the same run is stopped by its checks
    source, grain = INPUTS[rollups[0]], TABLES[rollups[0]].grain
    wrong = {source: _found_wrong(home, instance, source)}
    starts = {
        TABLES[table].grain.start(key) for each in (wrong, held_back) for table, found in each.items() for key in found
    }
    return {grain.key(start) for start in starts} & set(keys)


def _found_wrong(home: Home, instance: "DagsterInstance", table: str) -> set[str]:
    """Partitions of a table that must not be built upon: found wrong, edited, or not judged in their present form."""
    from dagster import AssetCheckKey, AssetKey
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

    from expectations.checks import CHECK_NAME, edited, unjudged

    infos = instance.event_log_storage.get_asset_check_partition_info([AssetCheckKey(AssetKey(table), CHECK_NAME)])
    failed = {
        info.partition_key
        for info in infos
        if info.partition_key and info.latest_execution_status == AssetCheckExecutionRecordStatus.FAILED
    }
    return failed | unjudged(instance, table) | edited(Lake(home, _no_session), table).keys()


def _no_session() -> "SparkSession":
    raise AssertionError("a question about files starts no JVM")


def _held(held_back: dict[str, set[str]]) -> Outcome:
    return Outcome(held_back={asset: tuple(sorted(keys)) for asset, keys in held_back.items() if keys} or None)
