"""Runs of the orchestrator in this process, on the home's own instance, in one JVM; and their results.

Belongs here: starting a run over a range of partitions, and typed results. The UI starts the same runs and shows these.
Does not belong here: which runs are needed (`materialize.py`), what a run does (`assets`).
"""

import importlib
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from assets.check_states import check_key
from assets.names import HELD_BACK, RANGE_END, RANGE_START, tags_for_more
from assets.tables import TABLES
from orchestration.interrupts import raise_if_stopped
from orchestration.reasons import in_a_line, innermost
from tidemark.model.timegrid import Grain
from tidemark.storage.home import HOME_VARIABLE, Home

if TYPE_CHECKING:
    from dagster import DagsterEvent, DagsterInstance, JobDefinition

# The orchestrator would log every event to the terminal; the caller shows progress in its own way.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class Step:
    """A step of a run that has just begun, for showing progress."""

    asset: str
    is_check: bool
    partitions: tuple[str, ...]
    part: int = 1  # of a request that takes several runs
    parts: int = 1


Progress = Callable[[Step], None]


@dataclass(frozen=True)
class CheckOutcome:
    """The check result of one partition."""

    asset: str
    partition: str | None
    passed: bool
    is_blocking: bool  # whether it stops downstream assets
    message: str


@dataclass(frozen=True)
class RunOutcome:
    """One run. `partitions` are those that it materialized; `error` says why it failed, if it did."""

    run_id: str
    assets: tuple[str, ...]
    partitions: dict[str, tuple[str, ...]]
    checks: tuple[CheckOutcome, ...]
    seconds: float
    error: str | None = None
    held_back: dict[str, dict[str, str]] = field(default_factory=dict)  # asset → partition → why, of a refresh

    @property
    def succeeded(self) -> bool:
        """Whether everything in it was done; a failed check that blocks fails the run."""
        return self.error is None


@dataclass(frozen=True)
class RunResults:
    """All runs that a request took, and the partitions that were blocked."""

    runs: tuple[RunOutcome, ...] = ()
    held_back: dict[str, tuple[str, ...]] | None = None  # asset → partitions
    resumed: int = 0  # parts that an earlier, interrupted request had finished
    # Asset → partition → which of its inputs blocks it, and why, where that is known partition by partition.
    held_because: dict[str, dict[str, str]] | None = None

    @property
    def succeeded(self) -> bool:
        """Whether every run succeeded, every check passed and nothing was blocked."""
        return all(run.succeeded for run in self.runs) and not self.failed_checks and not self.held_back

    @property
    def checks(self) -> tuple[CheckOutcome, ...]:
        """Every check result, in the order of the runs."""
        return tuple(check for run in self.runs for check in run.checks)

    @property
    def failed_checks(self) -> tuple[CheckOutcome, ...]:
        """The check results that stop downstream assets."""
        return tuple(check for check in self.checks if not check.passed and check.is_blocking)

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Asset → partitions that were materialized."""
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for run in self.runs:
            for asset, keys in run.partitions.items():
                found[asset].update(dict.fromkeys(keys))
        return {asset: tuple(sorted(keys)) for asset, keys in found.items()}

    def __add__(self, other: "RunResults") -> "RunResults":
        held_back = {**(self.held_back or {}), **(other.held_back or {})} or None
        because = {**(self.held_because or {}), **(other.held_because or {})} or None
        return RunResults(self.runs + other.runs, held_back, self.resumed + other.resumed, because)


def ranges_of(keys: Iterable[str], grain: Grain) -> list[tuple[str, ...]]:
    """Keys of partitions of one grain as unbroken ranges."""
    ranges: list[list[str]] = []
    for key in sorted(set(keys)):
        if ranges and grain.start(key) == grain.next(grain.start(ranges[-1][-1])):
            ranges[-1].append(key)
        else:
            ranges.append([key])
    return [tuple(each) for each in ranges]


def tags_of(keys: Sequence[str], grain: Grain) -> dict[str, str]:
    """The tags of a run over partitions: the longest unbroken range in the orchestrator's own tags, and the rest."""
    own = max(ranges_of(keys, grain), key=len)
    return {RANGE_START: own[0], RANGE_END: own[-1], **tags_for_more(sorted(set(keys) - set(own)))}


def run(
    home: Home,
    instance: "DagsterInstance",
    assets: Sequence[str],
    keys: tuple[str, ...],
    progress: Progress | None,
    *,
    tags: Mapping[str, str] | None = None,
    is_check: bool = False,
    config: Mapping[str, Any] | None = None,
) -> RunOutcome:
    """One run in this process, of assets with their checks or of checks alone; failures are returned, not raised.

    `config` is for an asset that takes one, and then is the only one of the run.
    """
    from dagster import AssetKey

    run_id = str(uuid.uuid4())
    started = time.monotonic()
    job, target = _asset_job(home), [AssetKey(asset) for asset in assets]
    if is_check:
        checks = {check_key(asset) for asset in assets}
        job, target = job.get_subset(asset_selection=set(), asset_check_selection=checks), []
    if keys or config is not None or _has_segments_to_drain(home):
        _prepare_checks()
    with _listening(instance, run_id, keys, progress):
        result = job.execute_in_process(
            instance=instance,
            run_id=run_id,
            run_config={**QUIET, **({"ops": {assets[0]: {"config": dict(config)}}} if config is not None else {})},
            tags={**(tags or {}), **(tags_of(keys, TABLES[assets[0]].grain) if keys else {})},
            # Given here and not to a subset of the job, because the run's page shows this as its target.
            asset_selection=target,
            raise_on_error=False,
        )
    raise_if_stopped()
    events = list(result.all_events)
    return RunOutcome(
        run_id=run_id,
        assets=tuple(assets),
        partitions=_materialized(events),
        checks=tuple(_checks(events)),
        seconds=time.monotonic() - started,
        error=None if result.success else _reason(events),
        held_back=_held_back(events),
    )


def _asset_job(home: Home) -> "JobDefinition":
    """The job that holds every asset, for this home. Partitions begin where the home's settings say."""
    os.environ[HOME_VARIABLE] = str(home.root)
    from orchestration.build import build_defs, default_resources

    return build_defs(default_resources(home)).resolve_implicit_global_asset_job_def()


def _has_segments_to_drain(home: Home) -> bool:
    """Whether the log holds more than the lake; answered without a JVM."""
    from tidemark.observe.sealed_log import Log
    from tidemark.tables.plans import durable_epochs

    return Log(home).has_beyond({shard: epoch + 1 for shard, epoch in durable_epochs(home).items()})


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


def _held_back(events: Sequence["DagsterEvent"]) -> dict[str, dict[str, str]]:
    for event in events:
        if event.is_step_materialization and HELD_BACK in event.materialization.metadata:
            return msgspec.convert(event.materialization.metadata[HELD_BACK].value, dict[str, dict[str, str]])
    return {}


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
    """Why a run failed, in the words of the innermost error, which names the cause."""
    for event in events:
        if event.is_step_failure:
            error = innermost(event.step_failure_data.error)
            if error:
                says_more = len(error.message.strip().splitlines()) > 1
                what = error.message.strip() if says_more else in_a_line(error.message, error.stack)
                return f"{event.step_key}: {what}"
    return "the run failed; its page in the UI shows what happened"


@contextmanager
def _listening(
    instance: "DagsterInstance", run_id: str, keys: tuple[str, ...], progress: Progress | None
) -> Iterator[None]:
    """Report every step that begins."""
    if progress is None:
        yield
        return
    from dagster import EventLogEntry

    told: list[Step] = []

    def hear(entry: EventLogEntry) -> None:
        step = _step_of(entry.dagster_event, keys) if entry.dagster_event else None
        if step and step not in told[-1:]:
            told.append(step)
            progress(step)

    instance.add_event_listener(run_id, hear)
    yield


def _step_of(event: "DagsterEvent", keys: tuple[str, ...]) -> Step | None:
    """What a run is at: a step that begins, or a table that a step without partitions makes or checks."""
    from dagster import DagsterEventType

    if event.event_type == DagsterEventType.STEP_START and event.step_key:
        return Step(event.step_key.removesuffix("_suite"), event.step_key.endswith("_suite"), keys)
    if keys:
        return None  # each of its tables has steps of its own
    if event.event_type == DagsterEventType.ASSET_MATERIALIZATION and event.asset_key and event.partition:
        return Step(event.asset_key.to_user_string(), False, ())
    if event.event_type == DagsterEventType.ASSET_CHECK_EVALUATION:
        return Step(event.asset_check_evaluation_data.asset_key.to_user_string(), True, ())
    return None
