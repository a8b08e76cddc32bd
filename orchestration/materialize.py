"""What the command line and the demo ask for: a drain, hours of some assets, everything that is stale, checks again.

Belongs here: which runs are needed for what was asked, and which partitions are held back. Does not belong here: how a
run is started (`runs.py`), what it does (`assets`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from orchestration.instance import open_instance
from orchestration.runs import Outcome, Progress, Step, ranges_of, run
from resources.errors import TidemarkError
from resources.home import Home
from resources.lake import Lake
from resources.timegrid import HOUR_US, floor_to, hour_key, hour_start, week_key

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from pyspark.sql import SparkSession

DRAIN = "drain"
HOURLY_ASSETS = ("deltas", "dead_letters", "minute_counts", "hourly_counts")
WEEKLY_ASSETS = ("weekly_counts",)
# What a week of `weekly_counts` is the sum of, and what an hour of each rollup is.
INPUTS = {"minute_counts": "deltas", "hourly_counts": "minute_counts", "weekly_counts": "hourly_counts"}

# A week of hours in a run: a month is a handful of runs, and what a crash undoes is minutes of work.
PARTITIONS_PER_RUN = 168
BACKFILL_TAG, PART_TAG = "tidemark/backfill", "tidemark/part"

# A run of a request: its assets and its partitions.
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
    """Materialize hours of assets, and the weeks that hold them where an asset is weekly.

    Unbroken ranges of hours, at most a week of them in a run with all hourly assets in it; then the weeks. What hangs
    on a partition that was found wrong is held back. With `is_resumed`, parts that an interrupted request for the same
    has finished are not done again.
    """
    _refuse_unknown(assets)
    keys = sorted(set(hours))
    hourly = tuple(asset for asset in HOURLY_ASSETS if asset in assets)
    weekly = tuple(asset for asset in WEEKLY_ASSETS if asset in assets)
    weeks = sorted({week_key(hour_start(key)) for key in keys})
    with open_instance(home) as instance:
        request = _Request(home, instance, [(hourly, keys), (weekly, weeks)], progress)
        finished = request.finished_parts() if is_resumed else set()
        held_back: dict[str, set[str]] = defaultdict(set)
        outcome = Outcome(resumed=len(finished))
        for number, (names, part) in enumerate(request.parts, start=1):
            if number in finished:
                continue
            wrong = _wrong_inputs(home, instance, names, part, held_back)
            held_back[names[0]] |= wrong
            good = ranges_of(key for key in part if key not in wrong)
            for each in good:
                outcome += request.run(number, names, each, is_end=each is good[-1])
        return outcome + _held(held_back)


def materialize_everything_stale(home: Home, *, progress: Progress | None = None) -> Outcome:
    """Bring every rollup up to date: exactly the partitions that are behind, unless their input was found wrong."""
    from assets.rollups.stale import stale_partitions

    with open_instance(home) as instance:
        stale = stale_partitions(instance, home)
        held_back: dict[str, set[str]] = defaultdict(set)
        wanted: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for hour in sorted({*stale.get("minute_counts", {}), *stale.get("hourly_counts", {})}):
            wanted[tuple(name for name in ("minute_counts", "hourly_counts") if hour in stale.get(name, {}))].append(
                hour
            )
        outcome = Outcome()
        for names, hours in wanted.items():
            outcome += _run_good(home, instance, names, hours, held_back, progress)
        weeks = sorted(stale_partitions(instance, home).get("weekly_counts", {}))
        return outcome + _run_good(home, instance, WEEKLY_ASSETS, weeks, held_back, progress) + _held(held_back)


def check_hours(
    home: Home, tables: Sequence[str], hours: Iterable[str], *, progress: Progress | None = None
) -> Outcome:
    """Run the suites of tables again on hours (and weeks) that were materialized; nothing is written but verdicts."""
    from resources.record import Record

    _refuse_unknown(tables)
    keys = sorted(set(hours))
    outcome = Outcome()
    with open_instance(home) as instance:
        for table in tables:
            wanted = sorted({week_key(hour_start(key)) for key in keys}) if table in WEEKLY_ASSETS else keys
            known = Record.latest_by_partition(instance, table, wanted)
            for part in ranges_of(known):
                outcome += Outcome((run(home, instance, [table], part, progress, is_check=True),))
    return outcome


def hours_between(first: str, last: str) -> list[str]:
    """Keys of all hours from the first to the last, both of them in it."""
    return [hour_key(start) for start in range(floor_to(hour_start(first), HOUR_US), hour_start(last) + 1, HOUR_US)]


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
        for each in ranges_of(keys) if names else ():
            for start in range(0, len(each), PARTITIONS_PER_RUN):
                yield names, each[start : start + PARTITIONS_PER_RUN]


def _refuse_unknown(assets: Sequence[str]) -> None:
    unknown = sorted(set(assets) - {*HOURLY_ASSETS, *WEEKLY_ASSETS})
    if unknown:
        known = ", ".join((*HOURLY_ASSETS, *WEEKLY_ASSETS))
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
    good = ranges_of(key for key in keys if key not in wrong)
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
    wrong = _found_wrong(home, instance, INPUTS[rollups[0]])
    if names == WEEKLY_ASSETS:
        return {week_key(hour_start(hour)) for hour in wrong.union(*held_back.values())} & set(keys)
    return wrong & set(keys)


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
