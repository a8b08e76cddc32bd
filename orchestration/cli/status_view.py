"""How `status` looks to people: tables, ages in words, and the problems at the end, where the eye rests.

Belongs here: drawing a snapshot that was taken before. Nothing is read here.
"""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table

from orchestration.cli.watermark_view import watermark_tree_table
from orchestration.run_status import BackfillStatus, CheckStatus, OrchestratorStatus, RunStatus
from orchestration.snapshot import Snapshot
from tidemark.cli.output import at, counted, duration, in_bytes, table
from tidemark.observe.home_status import seconds_between
from tidemark.observe.lake_status import TableStatus
from tidemark.observe.status import ShardStatus
from tidemark.shard_state.live import LiveStatus

# A screen holds this many; the JSON has all.
FAILED_SHOWN = 10


def status_view(snapshot: Snapshot) -> RenderableType:
    """The whole page."""
    return Group(*file_parts(snapshot), *orchestrator_parts(snapshot))


def file_parts(snapshot: Snapshot) -> Iterator[RenderableType]:
    """The upper part, which needs no answer from the orchestrator."""
    yield f"Home {snapshot.home}, {at(snapshot.now_us)} UTC"
    yield shard_table(snapshot.shards, snapshot.durable)
    if running := [shard.live for shard in snapshot.shards if shard.live]:
        yield live_table(running, snapshot.now_us)
    yield _waiting(snapshot)
    yield f"{_warm(snapshot)}\n"
    yield watermark_tree_table(snapshot.event_time, now_us=snapshot.now_us)
    yield lake_table(snapshot.tables)


def orchestrator_parts(snapshot: Snapshot) -> Iterator[RenderableType]:
    """The lower part: check results, runs, and all problems."""
    orchestrator = snapshot.orchestrator
    if orchestrator.checks:
        yield check_table(orchestrator.checks)
    if orchestrator.runs:
        yield run_table(orchestrator.runs)
    if orchestrator.backfills:
        yield backfill_table(orchestrator.backfills)
    yield from _wrong(snapshot)


def shard_table(shards: list[ShardStatus], durable: dict[int, int]) -> Table:
    """Epochs by level."""
    columns = ("shard", "applied", "flushed", "sealed", "durable", "segments", "deltas", "log")
    rows = table("Shards, by last epoch", *columns, numbers=columns[1:])
    for shard in shards:
        epochs = (shard.applied_epoch, shard.flushed_epoch, shard.sealed_epoch, durable.get(shard.shard, 0))
        numbers = [f"{number:,}" for number in (*epochs, shard.segments, shard.rows)]
        rows.add_row(str(shard.shard), *numbers, in_bytes(shard.log_bytes))
    return rows


def live_table(running: list[LiveStatus], now_us: int) -> Table:
    """What the shards that take writes now have in memory, and when and why they last flushed and delivered."""
    columns = ("shard", "state", "in line", "pending", "last flush", "last batch", "by", "batch limit")
    rows = table(
        "Taking writes now", *columns, numbers=("in line", "pending", "last flush", "last batch", "batch limit")
    )
    for live in running:
        state = f"{live.state}, disk nearly full" if live.is_disk_low else live.state
        batch = "" if live.last_batch_us is None else _ago(live.last_batch_us, now_us)
        rows.add_row(
            str(live.shard),
            state,
            f"{live.queued_writes:,}",
            in_bytes(sum(live.bytes.values())),
            _ago(live.last_flush_us, now_us),
            batch,
            live.last_batch_trigger or "",
            f"{live.batch_limit_ms:,.0f} ms",
        )
    return rows


def watermark_table(watermarks: dict[str, int]) -> Table:
    """Event time, by stream."""
    rows = table("Watermarks", "stream", "no older event is expected, UTC")
    for stream, watermark in watermarks.items():
        rows.add_row(stream, at(watermark))
    return rows


def lake_table(tables: dict[str, TableStatus]) -> Table:
    """Tables with rows, bytes and versions."""
    rows = table("Tables", "table", "rows", "bytes", "files", "version", numbers=("rows", "bytes", "files", "version"))
    for name, found in tables.items():
        rows.add_row(name, f"{found.rows:,}", in_bytes(found.bytes), f"{found.files:,}", str(found.version))
    return rows


def check_table(checks: dict[str, CheckStatus]) -> Table:
    """How many partitions of each table passed their check."""
    numbers = ("passed", "failed", "not checked yet")
    rows = table("Checks, by partitions", "table", *numbers, numbers=numbers)
    for name, found in checks.items():
        rows.add_row(name, f"{found.passed:,}", f"{len(found.failed):,}", f"{found.unjudged:,}")
    return rows


def run_table(runs: list[RunStatus]) -> Table:
    """The last runs, open ones first."""
    rows = table("Last runs", "started, UTC", "what", "partitions", "status", "took", numbers=("took",))
    for run in runs:
        took = "" if run.seconds is None else duration(run.seconds)
        rows.add_row(at(run.at_us), run.what, _partitions(run), run.status, took)
    return rows


def backfill_table(backfills: list[BackfillStatus]) -> Table:
    """Unfinished backfills."""
    rows = table("Open backfills", "asked for, UTC", "what", "status", "id")
    for backfill in backfills:
        rows.add_row(at(backfill.at_us), backfill.what, backfill.status, backfill.backfill_id)
    return rows


def _ago(moment_us: int, now_us: int) -> str:
    return f"{duration(seconds_between(moment_us, now_us))} ago"


def _waiting(snapshot: Snapshot) -> str:
    pending, unsealed = snapshot.pending, sum(shard.log_bytes for shard in snapshot.shards)
    log = f"Not sealed yet: {in_bytes(unsealed)} of log."
    if pending.oldest_us is None:
        return f"Every sealed segment is in the lake. {log}"
    oldest = duration(seconds_between(pending.oldest_us, snapshot.now_us))
    return (
        f"Sealed and not in the lake yet: {counted(pending.segments, 'segment')}, {counted(pending.rows, 'delta')}, "
        f"{in_bytes(pending.bytes)}, the oldest for {oldest}. {log}"
    )


def _warm(snapshot: Snapshot) -> str:
    host = snapshot.warm_host
    if host is None:
        return "No warm host is running: the first command that starts runs, or ui, starts it."
    spark = "its Spark is starting again" if host.spark_pid is None else f"its Spark is process {host.spark_pid}"
    return (
        f"The warm host is process {host.pid}, since {at(host.since_us)}; {spark}. "
        f"It ends after {duration(host.idle_s)} without work."
    )


def _partitions(run: RunStatus) -> str:
    more = f" and {len(run.more_partitions)} more" if run.more_partitions else ""
    return _span(run.from_partition, run.to_partition) + more


def _span(first: str | None, last: str | None) -> str:
    return first or "" if first is None or first == last else f"{first} to {last}"


def _wrong(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.event_time.error:
        yield f"UNKNOWN: {snapshot.event_time.error}"
    if snapshot.orchestrator_error:
        yield f"UNKNOWN: {snapshot.orchestrator_error}"
    for name, found in snapshot.tables.items():
        if found.error:
            yield f"UNREADABLE: {name}: {found.error}"
    yield from _failures(snapshot.orchestrator)
    for name, checked in snapshot.orchestrator.checks.items():
        for failed in checked.failed[:FAILED_SHOWN]:
            yield f"FOUND WRONG: {name} {failed.partition}: {failed.message}"
        more = len(checked.failed) - FAILED_SHOWN
        if more > 0:
            yield f"FOUND WRONG: {name}: {counted(more, 'more partition')}; --json names all"


def _failures(found: OrchestratorStatus) -> Iterator[str]:
    for run in found.runs:
        if run.error:
            yield f"FAILED: {run.what} {_partitions(run)}".rstrip() + f", {at(run.at_us)}: {run.error}"
    for failing in found.failing:
        where = f"{failing.what} {_span(failing.from_partition, failing.to_partition)}".rstrip()
        said = f": {failing.error}" if failing.error else ""
        yield f"KEEPS FAILING: {where}, {failing.times} times since {at(failing.since_us)}{said}"
