"""A home at one time: the log, the segments waiting for the lake, the tables, and the orchestrator's view of them.

Belongs here: taking the snapshot, in two steps because the orchestrator takes longer than all files together, and its
form as JSON. It opens nothing for writing and starts no JVM. Does not belong here: how each part is read
(`tidemark/observe/status.py`, `tidemark/observe/lake_status.py`, `run_status.py`), and how it is shown
(`cli/status_view.py`).
"""

from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from orchestration.run_status import OrchestratorStatus, RunsUnreadableError, read_run_status
from orchestration.warm_host.client import describe
from tidemark.log.manifest import Manifest
from tidemark.model.errors import ConfigurationError
from tidemark.model.timegrid import SECOND_US, from_us
from tidemark.observe.lake_status import TableStatus, read_tables
from tidemark.observe.status import ShardStatus, read_status
from tidemark.observe.watermark_tree import WatermarkTree, read_watermark_tree, tree_as_json
from tidemark.storage.home import Home
from tidemark.tables.plans import durable_epochs


class Pending(Struct, frozen=True):
    """Sealed segments that are not in the lake yet."""

    segments: int = 0
    rows: int = 0
    bytes: int = 0
    oldest_us: int | None = None  # when the oldest of them was sealed


class WarmHost(Struct, frozen=True):
    """The process that keeps everything imported for commands and runs, and the Spark beside it."""

    pid: int
    since_us: int
    idle_s: float  # it ends after so long without work
    spark_pid: int | None
    spark_address: str


class Snapshot(Struct, frozen=True):
    """Everything that `status` shows."""

    home: str
    now_us: int
    shards: list[ShardStatus]
    durable: dict[int, int]  # shard → last epoch that is in the lake
    pending: Pending
    tables: dict[str, TableStatus]
    orchestrator: OrchestratorStatus
    orchestrator_error: str | None = None  # why runs and checks could not be read, if so
    event_time: WatermarkTree = WatermarkTree()
    warm_host: WarmHost | None = None  # none is running


def take_snapshot(home: Home, *, now_us: int) -> Snapshot:
    """Look at everything once. If the orchestrator's storage cannot be read, the rest is still shown."""
    return ask_orchestrator(home, read_files(home, now_us=now_us))


def read_files(home: Home, *, now_us: int) -> Snapshot:
    """Everything but the orchestrator's part; Dagster is not imported."""
    # The lake first: a segment that is drained meanwhile still counts as pending, and no epoch is shown as durable
    # without being shown as sealed.
    durable = durable_epochs(home)
    shards = read_status(home)
    return Snapshot(
        home=str(home.root),
        now_us=now_us,
        shards=shards,
        durable=durable,
        pending=read_pending(home, shards, durable),
        tables=read_tables(home),
        orchestrator=OrchestratorStatus(),
        event_time=read_watermark_tree(home, shards, now_us=now_us),
        warm_host=read_warm_host(home),
    )


def read_warm_host(home: Home) -> WarmHost | None:
    """The running warm host of a home; none is started for this."""
    said = describe(home)
    return None if said is None else convert(said, WarmHost)


def ask_orchestrator(home: Home, snapshot: Snapshot) -> Snapshot:
    """The same with runs and check results, or why they could not be read."""
    try:
        return replace(snapshot, orchestrator=read_run_status(home, now_us=snapshot.now_us))
    except (RunsUnreadableError, ConfigurationError) as unreadable:
        return replace(snapshot, orchestrator_error=str(unreadable))


def read_pending(home: Home, shards: list[ShardStatus], durable: dict[int, int]) -> Pending:
    """What the next drain would bring in. Only manifests of shards with pending segments are read again."""
    waiting = [
        entry
        for shard in shards
        if shard.sealed_epoch > durable.get(shard.shard, 0)
        for entry in Manifest(home.segments(shard.shard)).since(durable.get(shard.shard, 0) + 1)
    ]
    return Pending(
        segments=len(waiting),
        rows=sum(entry.rows for entry in waiting),
        bytes=sum(entry.bytes for entry in waiting),
        oldest_us=min((entry.sealed_us for entry in waiting), default=None),
    )


def stream_watermarks(shards: list[ShardStatus]) -> dict[str, int]:
    """A stream's watermark is the minimum over the shards that have seen it (T2)."""
    found: dict[str, int] = {}
    for shard in shards:
        for stream, watermark in shard.watermarks.items():
            found[stream] = min(watermark, found.get(stream, watermark))
    return dict(sorted(found.items()))


def seconds_between(earlier_us: int, later_us: int) -> float:
    """An age or a lag, to the millisecond; below zero when the clock that wrote was ahead of the one that reads."""
    return round((later_us - earlier_us) / SECOND_US, 3)


def snapshot_as_json(snapshot: Snapshot) -> dict[str, Any]:
    """For scripts and monitors."""
    pending, orchestrator, now_us = snapshot.pending, snapshot.orchestrator, snapshot.now_us
    return {
        "home": snapshot.home,
        "at": from_us(now_us).isoformat(),
        "shards": [_shard_as_json(shard, snapshot.durable) for shard in snapshot.shards],
        "watermarks": {
            stream: {"watermark": from_us(watermark).isoformat(), "lag_s": seconds_between(watermark, now_us)}
            for stream, watermark in stream_watermarks(snapshot.shards).items()
        },
        "event_time": tree_as_json(snapshot.event_time, now_us=now_us),
        "pending": {
            "segments": pending.segments,
            "rows": pending.rows,
            "bytes": pending.bytes,
            "oldest_s": None if pending.oldest_us is None else seconds_between(pending.oldest_us, now_us),
        },
        "tables": to_builtins(snapshot.tables),
        "runs": [_timed_as_json(run) for run in orchestrator.runs],
        "failing": [_timed_as_json(failing) for failing in orchestrator.failing],
        "backfills": [_timed_as_json(backfill) for backfill in orchestrator.backfills],
        "checks": to_builtins(orchestrator.checks),
        "orchestrator_error": snapshot.orchestrator_error,
        "warm_host": None if snapshot.warm_host is None else _timed_as_json(snapshot.warm_host),
    }


def _shard_as_json(shard: ShardStatus, durable: dict[int, int]) -> dict[str, Any]:
    return {
        **shard._asdict(),
        "last_segment": to_builtins(shard.last_segment),
        "live": to_builtins(shard.live),
        "durable_epoch": durable.get(shard.shard, 0),
    }


def _timed_as_json(answer: Struct) -> dict[str, Any]:
    """A run or a backfill; its times as text, like all others here."""
    fields: dict[str, Any] = to_builtins(answer)
    moments = {name: fields.pop(name) for name in ("at_us", "since_us") if name in fields}
    return {**{name.removesuffix("_us"): from_us(moment).isoformat() for name, moment in moments.items()}, **fields}
