"""Running assets from the command line and the demo: in this process, on the home's own instance, in one JVM.

Belongs here: which runs are needed for what was asked, starting them one after the other, and typed results. The runs
are the same that the UI starts, and are seen there. Does not belong here: what a run does (`assets`).
"""

import importlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestration.instance import open_instance
from resources.errors import TidemarkError
from resources.home import HOME_VARIABLE, Home
from resources.timegrid import HOUR_US, WEEK_US, floor_to, hour_key, hour_start, week_key, week_start

if TYPE_CHECKING:
    from dagster import DagsterEvent, DagsterInstance, JobDefinition

DRAIN = "drain"
HOURLY_ASSETS = ("deltas", "dead_letters", "minute_counts", "hourly_counts")
WEEKLY_ASSETS = ("weekly_counts",)
# What a week of `weekly_counts` is the sum of, and what an hour of each rollup is.
INPUTS = {"minute_counts": "deltas", "hourly_counts": "minute_counts", "weekly_counts": "hourly_counts"}

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"

# The orchestrator would log every event to the terminal; whoever calls this shows progress in its own way.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class UnknownAssetError(TidemarkError):
    """Something is to be materialized that is not an asset with partitions."""


@dataclass(frozen=True)
class Step:
    """A step of a run that has just begun, for whoever shows progress."""

    asset: str
    is_check: bool
    partitions: tuple[str, ...]


Progress = Callable[[Step], None]


@dataclass(frozen=True)
class CheckOutcome:
    """The verdict of a table's suite on one partition."""

    asset: str
    partition: str | None
    passed: bool
    is_blocking: bool  # whether it stops what is downstream
    message: str


@dataclass(frozen=True)
class RunOutcome:
    """One run. `partitions` are those that it has materialized; `error` says why it failed, if it did."""

    run_id: str
    assets: tuple[str, ...]
    partitions: dict[str, tuple[str, ...]]
    checks: tuple[CheckOutcome, ...]
    seconds: float
    error: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether everything in it was done; a failed check that blocks fails the run."""
        return self.error is None


@dataclass(frozen=True)
class Outcome:
    """All runs that a request took, and what was left alone because its input was found wrong."""

    runs: tuple[RunOutcome, ...] = ()
    held_back: dict[str, tuple[str, ...]] | None = None  # asset → partitions

    @property
    def succeeded(self) -> bool:
        """Whether every run succeeded, every check passed and nothing was held back."""
        return all(run.succeeded for run in self.runs) and not self.failed_checks and not self.held_back

    @property
    def checks(self) -> tuple[CheckOutcome, ...]:
        """Every verdict, in the order of the runs."""
        return tuple(check for run in self.runs for check in run.checks)

    @property
    def failed_checks(self) -> tuple[CheckOutcome, ...]:
        """The verdicts that stop what is downstream."""
        return tuple(check for check in self.checks if not check.passed and check.is_blocking)

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Asset → partitions that were materialized."""
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for run in self.runs:
            for asset, keys in run.partitions.items():
                found[asset].update(dict.fromkeys(keys))
        return {asset: tuple(sorted(keys)) for asset, keys in found.items()}

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(self.runs + other.runs, {**(self.held_back or {}), **(other.held_back or {})} or None)


def drain(home: Home, *, progress: Progress | None = None) -> Outcome:
    """Drain all sealed segments and judge the hours that they touched."""
    with open_instance(home) as instance:
        return Outcome((_run(home, instance, [DRAIN], (), progress),))


def materialize_hours(
    home: Home, assets: Sequence[str], hours: Iterable[str], *, progress: Progress | None = None
) -> Outcome:
    """Materialize hours of assets, and the weeks that hold them where an asset is weekly.

    One run for each unbroken range of hours with all hourly assets in it, then one for each unbroken range of weeks.
    """
    unknown = sorted(set(assets) - {*HOURLY_ASSETS, *WEEKLY_ASSETS})
    if unknown:
        known = ", ".join((*HOURLY_ASSETS, *WEEKLY_ASSETS))
        raise UnknownAssetError(f"There is no partitioned asset {unknown[0]!r}. The assets are {known}.")
    keys = sorted(set(hours))
    hourly = [asset for asset in HOURLY_ASSETS if asset in assets]
    weekly = [asset for asset in WEEKLY_ASSETS if asset in assets]
    with open_instance(home) as instance:
        return _run_ranges(home, instance, hourly, keys, progress) + _run_ranges(
            home, instance, weekly, sorted({week_key(hour_start(key)) for key in keys}), progress
        )


def materialize_everything_stale(home: Home, *, progress: Progress | None = None) -> Outcome:
    """Bring every rollup up to date: exactly the partitions that are behind, unless their input was found wrong."""
    from assets.rollups.stale import stale_partitions

    with open_instance(home) as instance:
        stale = stale_partitions(instance, home)
        wanted: dict[tuple[str, ...], list[str]] = defaultdict(list)
        held_back: dict[str, set[str]] = defaultdict(set)
        wrong = {table: _found_wrong(instance, table) for table in ("deltas", "minute_counts")}
        for hour in sorted({*stale.get("minute_counts", {}), *stale.get("hourly_counts", {})}):
            assets = tuple(asset for asset in ("minute_counts", "hourly_counts") if hour in stale.get(asset, {}))
            if hour in wrong[INPUTS[assets[0]]]:
                held_back[assets[0]].add(hour)
            else:
                wanted[assets].append(hour)
        outcome = Outcome()
        for assets, hours in wanted.items():
            outcome += _run_ranges(home, instance, assets, hours, progress)
        weeks = stale_partitions(instance, home).get("weekly_counts", {})
        wrong_weeks = {
            week_key(hour_start(hour)) for hour in _found_wrong(instance, "hourly_counts").union(*held_back.values())
        }
        held_back["weekly_counts"] = wrong_weeks & weeks.keys()
        outcome += _run_ranges(home, instance, WEEKLY_ASSETS, sorted(weeks.keys() - wrong_weeks), progress)
        return outcome + Outcome(held_back={asset: tuple(sorted(keys)) for asset, keys in held_back.items() if keys})


def ranges_of(keys: Iterable[str]) -> list[tuple[str, ...]]:
    """Keys of hours, or of weeks, as unbroken ranges."""
    ranges: list[list[str]] = []
    for key in sorted(set(keys)):
        if ranges and _start(key) - _start(ranges[-1][-1]) == _length(key):
            ranges[-1].append(key)
        else:
            ranges.append([key])
    return [tuple(each) for each in ranges]


def hours_between(first: str, last: str) -> list[str]:
    """Keys of all hours from the first to the last, both of them in it."""
    return [hour_key(start) for start in range(floor_to(hour_start(first), HOUR_US), hour_start(last) + 1, HOUR_US)]


def _is_week(key: str) -> bool:
    return len(key) == len("2026-03-02")


def _start(key: str) -> int:
    return week_start(key) if _is_week(key) else hour_start(key)


def _length(key: str) -> int:
    return WEEK_US if _is_week(key) else HOUR_US


def _found_wrong(instance: "DagsterInstance", table: str) -> set[str]:
    """Partitions of a table that must not be built upon: found wrong, or not judged in their present form."""
    from dagster import AssetCheckKey, AssetKey
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

    from expectations.checks import CHECK_NAME, unjudged

    infos = instance.event_log_storage.get_asset_check_partition_info([AssetCheckKey(AssetKey(table), CHECK_NAME)])
    failed = {
        info.partition_key
        for info in infos
        if info.partition_key and info.latest_execution_status == AssetCheckExecutionRecordStatus.FAILED
    }
    return failed | unjudged(instance, table)


def _run_ranges(
    home: Home, instance: "DagsterInstance", assets: Sequence[str], keys: Sequence[str], progress: Progress | None
) -> Outcome:
    if not assets:
        return Outcome()
    return Outcome(tuple(_run(home, instance, assets, part, progress) for part in ranges_of(keys)))


def _run(
    home: Home, instance: "DagsterInstance", assets: Sequence[str], keys: tuple[str, ...], progress: Progress | None
) -> RunOutcome:
    """One run in this process; what fails in it is told, not raised."""
    from dagster import AssetKey
    from dagster._core.utils import make_new_run_id

    run_id = make_new_run_id()
    started = time.monotonic()
    job = _asset_job(home)
    if keys or _has_segments_to_drain(home):
        _prepare_checks()
    with _listening(instance, run_id, keys, progress):
        result = job.execute_in_process(
            instance=instance,
            run_id=run_id,
            asset_selection=[AssetKey(asset) for asset in assets],
            run_config=QUIET,
            tags={RANGE_START: keys[0], RANGE_END: keys[-1]} if keys else {},
            raise_on_error=False,
        )
    events = list(result.all_events)
    return RunOutcome(
        run_id=run_id,
        assets=tuple(assets),
        partitions=_materialized(events),
        checks=tuple(_checks(events)),
        seconds=time.monotonic() - started,
        error=None if result.success else _reason(events),
    )


def _asset_job(home: Home) -> "JobDefinition":
    """The job that holds every asset, for this home. Partitions begin where the home's settings say."""
    os.environ[HOME_VARIABLE] = str(home.root)
    from orchestration.build import build_defs, default_resources

    return build_defs(default_resources(home)).resolve_implicit_global_asset_job_def()


def _has_segments_to_drain(home: Home) -> bool:
    """Whether the log holds more than the lake; answered without a JVM."""
    from assets.ingest.log import Log
    from resources.plans import durable_epochs

    return bool(Log(home).beyond({shard: epoch + 1 for shard, epoch in durable_epochs(home).items()}))


def _prepare_checks() -> None:
    from expectations.runner import import_in_background

    # Both sides import it: it must be whole before the other thread begins.
    importlib.import_module("pandas")
    import_in_background()


def _materialized(events: Sequence["DagsterEvent"]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for event in events:
        if event.is_step_materialization and event.asset_key:
            found[event.asset_key.to_user_string()].update({event.partition: None} if event.partition else {})
    return {asset: tuple(keys) for asset, keys in found.items()}


def _checks(events: Sequence["DagsterEvent"]) -> Iterator[CheckOutcome]:
    for event in events:
        if event.event_type_value == "ASSET_CHECK_EVALUATION":
            evaluation = event.asset_check_evaluation_data
            yield CheckOutcome(
                asset=evaluation.asset_key.to_user_string(),
                partition=evaluation.partition,
                passed=evaluation.passed,
                is_blocking=bool(evaluation.blocking),
                message=evaluation.description or "",
            )


def _reason(events: Sequence["DagsterEvent"]) -> str:
    """Why a run failed, in the words of the innermost error, which is the one that knows."""
    for event in events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            while error and error.cause:
                error = error.cause
            if error:
                return f"{event.step_key}: {error.message.strip()}"
    return "the run failed; its page in the UI shows what happened"


@contextmanager
def _listening(
    instance: "DagsterInstance", run_id: str, keys: tuple[str, ...], progress: Progress | None
) -> Iterator[None]:
    """Tell of every step that begins."""
    if progress is None:
        yield
        return
    from dagster import DagsterEventType, EventLogEntry

    def hear(entry: EventLogEntry) -> None:
        event = entry.dagster_event
        if event and event.event_type == DagsterEventType.STEP_START and event.step_key:
            is_check = event.step_key.endswith("_suite")
            progress(Step(event.step_key.removesuffix("_suite"), is_check, keys))

    instance.add_event_listener(run_id, hear)
    yield
