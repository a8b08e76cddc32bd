"""The requests of the command line and the demo: a drain, hours of some assets, everything that is stale, new checks.

Belongs here: which runs a request needs, and which partitions are blocked. Does not belong here: how a run is started
(`runs.py`), what it does (`assets`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assets.as_seen import REFRESHED
from assets.refresh import PARTITIONS_TOGETHER, REFRESH, is_before
from assets.tables import GRAPH, TABLES
from assets.trust import WAITS_ITSELF, blocked, made_of_any, unfinished
from orchestration.instance import open_instance
from orchestration.runs import Progress, RunOutcome, RunResults, Step, ranges_of, run
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import GRAINS, HOUR_US, Grain, floor_to, hour_key, hour_start
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from dagster import DagsterInstance

DRAIN = "drain"
# The assets that have partitions, by grain, in the order in which they follow one another.
PARTITIONED = {
    grain: names
    for grain in GRAINS.values()
    if (names := tuple(spec.name for spec in TABLES.values() if not spec.is_whole and spec.grain is grain))
}
PARTITIONED_ASSETS = tuple(name for names in PARTITIONED.values() for name in names)
# Those whose partitions are buckets: no hour lies in a bucket, and every check of the table covers all buckets.
BUCKETED_ASSETS = tuple(spec.name for spec in TABLES.values() if spec.buckets and not spec.is_whole)
CHECKED_ASSETS = (*PARTITIONED_ASSETS, *BUCKETED_ASSETS)

BACKFILL_TAG, PART_TAG = "tidemark/backfill", "tidemark/part"

# A request, or one run of it: assets, all of one grain, and their partitions.
Part = tuple[tuple[str, ...], tuple[str, ...]]


class UnknownAssetError(TidemarkError):
    """The requested name is not an asset with partitions."""


def drain(home: Home, *, progress: Progress | None = None) -> RunResults:
    """Drain all sealed segments and check the hours that they touched."""
    with open_instance(home) as instance:
        return RunResults((run(home, instance, [DRAIN], (), progress),))


def drain_and_refresh(home: Home, *, progress: Progress | None = None) -> RunResults:
    """Drain all sealed segments, and bring every table up to date that is made from them, in one run."""
    with open_instance(home) as instance:
        return _with_held_back(run(home, instance, [DRAIN, REFRESH], (), progress))


def materialize_hours(
    home: Home,
    assets: Sequence[str],
    hours: Iterable[str],
    *,
    progress: Progress | None = None,
    is_resumed: bool = False,
) -> RunResults:
    """Materialize hours of assets, and the days, weeks and months that hold them where an asset has such partitions.

    Unbroken ranges of hours, at most a week of them in a run with all hourly assets in it; then coarser ones.
    Partitions that depend on one that failed its check are blocked. With `is_resumed`, parts that an interrupted
    request for the same has finished are not done again.
    """
    _refuse_unknown(assets)
    starts = {hour_start(key) for key in hours}
    wanted = [
        (tuple(name for name in names if name in assets), _keys(grain, starts)) for grain, names in PARTITIONED.items()
    ]
    with open_instance(home) as instance:
        request = _Request(home, instance, wanted, progress)
        finished = request.finished_parts() if is_resumed else set()
        held = _Held(home, instance)
        outcome = RunResults(resumed=len(finished))
        for number, (names, part) in enumerate(request.parts, start=1):
            if number in finished:
                continue
            grain = TABLES[names[0]].grain
            good = [(ok, each) for ok, keys in held.good_parts(names, part) for each in ranges_of(keys, grain)]
            for together, each in good:
                outcome += request.run(number, together, each, is_end=each is good[-1][1])
        return outcome + held.outcome


def materialize_everything_stale(
    home: Home,
    *,
    progress: Progress | None = None,
    clock: Callable[[], int] | None = None,
    tables: Collection[str] = (),
    before_us: int | None = None,
) -> RunResults:
    """Bring every table up to date: exactly the partitions that are behind, unless their input failed its check.

    With `tables` only these, and with `before_us` only partitions that begin before that. Carry-over to hours that lie
    ahead waits until these are partitions, as it does for the daemon. If nothing is behind, there is no run.
    """
    from assets.stale import stale_partitions

    with open_instance(home) as instance:
        stale = stale_partitions(instance, home)
        left = unfinished(home, instance, tables or REFRESHED)
        behind = {name: {*stale.get(name, ()), *keys} for name, keys in left.items()}
        if not any(is_before(TABLES[name].grain, key, before_us) for name, keys in behind.items() for key in keys):
            return RunResults()
        config: dict[str, Any] = {"tables": sorted(tables), "now_us": clock() if clock else 0}
        config |= {} if before_us is None else {"before_us": before_us}
        return _with_held_back(run(home, instance, [REFRESH], (), progress, config=config))


def _with_held_back(outcome: RunOutcome) -> RunResults:
    """The results of a run with a refresh, and what that held back, and why."""
    because = {asset: dict(held) for asset, held in outcome.held_back.items()}
    return RunResults((outcome,), {asset: tuple(held) for asset, held in because.items()} or None, 0, because or None)


def check_hours(
    home: Home, tables: Sequence[str], hours: Iterable[str], *, progress: Progress | None = None
) -> RunResults:
    """Run the suites of tables again on materialized hours (days and coarser); only check results are written.

    A table of buckets is checked in all of them.
    """
    from resources.record import Record

    _refuse_unknown(tables, CHECKED_ASSETS)
    starts = {hour_start(key) for key in hours}
    outcome = RunResults()
    with open_instance(home) as instance:
        for table in tables:
            grain = TABLES[table].grain
            keys = None if table in BUCKETED_ASSETS else _keys(grain, starts)
            known = Record.latest_by_partition(instance, table, keys)
            for part in [tuple(sorted(known))] if known and table in BUCKETED_ASSETS else ranges_of(known, grain):
                outcome += RunResults((run(home, instance, [table], part, progress, is_check=True),))
    return outcome


def hours_between(first: str, last: str) -> list[str]:
    """Keys of all hours from the first to the last, both included."""
    return [hour_key(start) for start in range(floor_to(hour_start(first), HOUR_US), hour_start(last) + 1, HOUR_US)]


def _keys(grain: Grain, starts: Iterable[int]) -> list[str]:
    """Keys of the partitions that hold these times."""
    return sorted({grain.key(start) for start in starts})


class _Request:
    """A request as numbered parts, one run each; the runs' tags say which were finished."""

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

    def run(self, number: int, names: tuple[str, ...], keys: tuple[str, ...], *, is_end: bool) -> RunResults:
        """One part, or a range of it; the last range says that the part is finished."""
        tags = {BACKFILL_TAG: self._id, PART_TAG: str(number)} if is_end else {}
        return RunResults((run(self._home, self._instance, names, keys, self._tell(number), tags=tags),))

    def _tell(self, number: int) -> Progress | None:
        told = self._progress
        if told is None:
            return None
        return lambda step: told(Step(step.asset, step.is_check, step.partitions, number, len(self.parts)))


def _parts(wanted: Sequence[tuple[tuple[str, ...], Sequence[str]]]) -> Iterator[Part]:
    for names, keys in wanted:
        for each in ranges_of(keys, TABLES[names[0]].grain) if names else ():
            for start in range(0, len(each), PARTITIONS_TOGETHER):
                yield names, each[start : start + PARTITIONS_TOGETHER]


def _refuse_unknown(assets: Sequence[str], known_assets: Sequence[str] = PARTITIONED_ASSETS) -> None:
    unknown = sorted(set(assets) - {*known_assets})
    if unknown:
        known = ", ".join(known_assets)
        raise UnknownAssetError(f"There is no partitioned asset {unknown[0]!r}. The assets are {known}.")


class _Held:
    """The blocked partitions: they depend on one that must not be built upon."""

    def __init__(self, home: Home, instance: "DagsterInstance") -> None:
        self._home, self._instance = home, instance
        self._all: dict[str, set[str]] = defaultdict(set)
        # Those whose own input failed, and not only another one that is blocked in the same run; and why.
        self._first: dict[str, dict[str, str]] = defaultdict(dict)

    @property
    def outcome(self) -> RunResults:
        """The blocked partitions, by asset."""
        first = {asset: dict(sorted(whys.items())) for asset, whys in self._first.items() if whys}
        held_back = {asset: tuple(whys) for asset, whys in first.items()}
        return RunResults(held_back=held_back or None, held_because=first or None)

    def good_parts(self, names: tuple[str, ...], keys: Sequence[str]) -> list[Part]:
        """What may be run: for each partition the assets that do not depend on a failed one."""
        wanted, held = set(keys), dict[str, set[str]]()
        for name in names:
            held[name] = set[str]()
            if name not in GRAPH:
                continue
            inputs = GRAPH[name].inputs
            # Partitions made earlier in the same run count as they will be; those blocked before count as waiting.
            together = {each: wanted for each in inputs if each in names}
            waiting = {each: self._all[each] for each in inputs if each not in names}
            first = blocked(self._home, self._instance, GRAPH[name], wanted, together=together, waiting=waiting)
            beside = {each: dict.fromkeys(held[each], WAITS_ITSELF) for each in inputs if each in held}
            self._first[name] |= first
            held[name] = {*first, *made_of_any(self._home, GRAPH[name], wanted, beside)}
            self._all[name] |= held[name]
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for key in keys:
            alike[tuple(name for name in names if key not in held[name])].append(key)
        return [(good, tuple(of)) for good, of in alike.items() if good]
