"""`status`: how far each shard and each table is.

Belongs here: a look from outside, also while another process writes. It opens nothing for writing and starts no JVM.
"""

from typing import Any

from msgspec import to_builtins
from rich.table import Table

from orchestration.cli.app import as_json, command
from orchestration.cli.output import answer_json, at, console, in_bytes, table
from orchestration.lake_status import TableStatus, read_tables
from resources.coordinator.status import ShardStatus, read_status
from resources.home import Home
from resources.plans import durable_epochs


@command
@as_json
def status(home: Home, as_json: bool) -> None:
    """How far each shard is (applied, flushed, sealed and durable epochs, watermarks), and what each table holds."""
    shards, tables, durable = read_status(home), read_tables(home), durable_epochs(home)
    if as_json:
        answer_json(
            {
                "home": str(home.root),
                "shards": [_as_json(shard, durable) for shard in shards],
                "tables": to_builtins(tables),
            }
        )
        return
    out = console()
    out.print(f"Home {home.root}")
    out.print(shard_table(shards, durable))
    out.print(watermark_table(stream_watermarks(shards)))
    out.print(lake_table(tables))


def stream_watermarks(shards: list[ShardStatus]) -> dict[str, int]:
    """A stream's watermark is the minimum over the shards that have seen it (T2)."""
    found: dict[str, int] = {}
    for shard in shards:
        for stream, watermark in shard.watermarks.items():
            found[stream] = min(watermark, found.get(stream, watermark))
    return dict(sorted(found.items()))


def shard_table(shards: list[ShardStatus], durable: dict[int, int]) -> Table:
    """Epochs by level."""
    columns = ("shard", "applied", "flushed", "sealed", "durable", "segments", "deltas", "log")
    rows = table("Shards, by last epoch", *columns, numbers=columns[1:])
    for shard in shards:
        epochs = (shard.applied_epoch, shard.flushed_epoch, shard.sealed_epoch, durable.get(shard.shard, 0))
        numbers = [f"{number:,}" for number in (*epochs, shard.segments, shard.rows)]
        rows.add_row(str(shard.shard), *numbers, in_bytes(shard.log_bytes))
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


def _as_json(shard: ShardStatus, durable: dict[int, int]) -> dict[str, Any]:
    return {
        **shard._asdict(),
        "last_segment": to_builtins(shard.last_segment),
        "durable_epoch": durable.get(shard.shard, 0),
    }
