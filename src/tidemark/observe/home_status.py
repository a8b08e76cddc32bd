"""A home at one time, as its files show it: the log, the segments that wait for the lake, the tables, the watermarks.

Belongs here: reading all of it once, and its form as JSON. It opens nothing for writing and starts no JVM. Runs and
checks are the orchestrator's, and are asked for elsewhere.
"""

from typing import Any

from msgspec import Struct, to_builtins

from tidemark.log.manifest import Manifest
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


class HomeStatus(Struct, frozen=True):
    """What the files of a home show."""

    home: str
    now_us: int
    shards: list[ShardStatus]
    durable: dict[int, int]  # shard → last epoch that is in the lake
    pending: Pending
    tables: dict[str, TableStatus]
    event_time: WatermarkTree = WatermarkTree()


def read_home(home: Home, *, now_us: int) -> HomeStatus:
    """Look at everything once."""
    # The lake first: a segment that is drained meanwhile still counts as pending, and no epoch is shown as durable
    # without being shown as sealed.
    durable = durable_epochs(home)
    shards = read_status(home)
    return HomeStatus(
        home=str(home.root),
        now_us=now_us,
        shards=shards,
        durable=durable,
        pending=read_pending(home, shards, durable),
        tables=read_tables(home),
        event_time=read_watermark_tree(home, shards, now_us=now_us),
    )


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


def home_as_json(status: HomeStatus) -> dict[str, Any]:
    """For scripts and monitors."""
    pending, now_us = status.pending, status.now_us
    return {
        "home": status.home,
        "at": from_us(now_us).isoformat(),
        "shards": [_shard_as_json(shard, status.durable) for shard in status.shards],
        **watermarks_as_json(status.shards, status.event_time, now_us=now_us),
        "pending": {
            "segments": pending.segments,
            "rows": pending.rows,
            "bytes": pending.bytes,
            "oldest_s": None if pending.oldest_us is None else seconds_between(pending.oldest_us, now_us),
        },
        "tables": to_builtins(status.tables),
    }


def watermarks_as_json(shards: list[ShardStatus], tree: WatermarkTree, *, now_us: int) -> dict[str, Any]:
    """How far event time has come: by stream, and along the graph of tables."""
    return {
        "watermarks": {
            stream: {"watermark": from_us(watermark).isoformat(), "lag_s": seconds_between(watermark, now_us)}
            for stream, watermark in stream_watermarks(shards).items()
        },
        "event_time": tree_as_json(tree, now_us=now_us),
    }


def _shard_as_json(shard: ShardStatus, durable: dict[int, int]) -> dict[str, Any]:
    return {
        **shard._asdict(),
        "last_segment": to_builtins(shard.last_segment),
        "live": to_builtins(shard.live),
        "durable_epoch": durable.get(shard.shard, 0),
    }
