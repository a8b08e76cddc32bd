"""How far event time has come along the graph of tables (T3): from the sources in the log to the platform as a whole.

Belongs here: combining the log, the table watermarks and the definitions, and the result as JSON. No JVM, no
orchestrator; nothing is written. How it is drawn is in `orchestration/cli/watermark_view.py`.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import SECOND_US, from_us
from tidemark.observe.sealed_log import SourceWatermark, source_watermarks
from tidemark.observe.status import ShardStatus
from tidemark.observe.watermark_graph import Graph, table_graph
from tidemark.shard_state.clock_reset import read_resets
from tidemark.storage.home import Home
from tidemark.streams import Streams, find_streams, load_streams
from tidemark.tables.table_watermarks import TableWatermark, least_watermark, read_table_watermarks


class Node(Struct, frozen=True):
    """One source or table."""

    name: str
    watermark_us: int | None
    held_by: str | None = None  # of a table: what kept it low when it was recorded; of a source: the shard
    waits_for: str | None = None  # of a table: the input that is least now
    is_idle: bool = False  # an idle source, or a table whose sources are all idle
    is_counted: bool = True  # by the clock of the log, which decides: the source that sent last counts, idle or not
    idle_from_us: int | None = None  # of a source: when it goes idle, or did
    inputs: tuple[str, ...] = ()


class WatermarkTree(Struct, frozen=True):
    """Everything that has a watermark, and the platform's own: the least of its sinks."""

    nodes: dict[str, Node] = {}
    sinks: tuple[str, ...] = ()
    watermark_us: int | None = None
    held_by: str | None = None
    error: str | None = None  # why the graph is not known, if it cannot be known


def read_watermark_tree(home: Home, shards: list[ShardStatus], *, now_us: int) -> WatermarkTree:
    """The tree as it is now. Definitions that cannot be read hide the defined tables, and nothing else."""
    error, streams = None, Streams()
    try:
        streams = load_streams(find_streams(home))
    except TidemarkError as wrong:
        error = str(wrong)
    sources = source_watermarks((shard.last_segment for shard in shards if shard.last_segment), read_resets(home))
    if any(shard.flushed_epoch > shard.sealed_epoch for shard in shards):
        # A producer has sent since. Which one will be known when it is sealed; until then only the log's own clock can
        # tell.
        now_us = 0
    graph = table_graph(streams, sources)
    recorded = read_table_watermarks(home.plans, graph.inputs)
    return build_tree(graph, sources, recorded, now_us=now_us, error=error)


def build_tree(
    graph: Graph,
    sources: Mapping[str, SourceWatermark],
    recorded: Mapping[str, TableWatermark],
    *,
    now_us: int,
    error: str | None = None,
) -> WatermarkTree:
    """The tree of everything known. Tables that were never made are in it, too: they wait.

    Idleness is shown by the reader's clock: a source may have gone idle after the last segment was sealed. Which input
    keeps a table low is decided by the log's clock: when all have stopped, the sources that sent last decide.
    """
    nodes = {name: _source(name, sources.get(name), now_us) for name in graph.sources}
    idle = {name for name, node in nodes.items() if node.is_idle or name not in sources}
    silent = {name for name, node in nodes.items() if not node.is_counted}
    for table, inputs in graph.inputs.items():
        watermark, made_from = recorded.get(table), graph.sources_of(table)
        idle |= set() if made_from - idle else {table}
        silent |= set() if made_from - silent else {table}
        _, lowest = least_watermark({name: nodes[name].watermark_us for name in inputs}, silent)
        nodes[table] = Node(
            name=table,
            watermark_us=watermark.watermark_us if watermark else None,
            held_by=watermark.held_by if watermark else None,
            waits_for=lowest,
            is_idle=table in idle,
            is_counted=table not in silent,
            inputs=inputs,
        )
    ends = {name: found.watermark_us for name in graph.sinks if (found := recorded.get(name))}
    least, held_by = least_watermark(ends, silent)
    return WatermarkTree(nodes, tuple(graph.sinks), least, held_by, error)


def _source(name: str, watermark: SourceWatermark | None, now_us: int) -> Node:
    if watermark is None:
        return Node(name, None, is_counted=False)
    is_idle = watermark.is_idle or (watermark.idle_from_us is not None and watermark.idle_from_us <= now_us)
    return Node(
        name,
        watermark.time_us,
        watermark.held_by,
        is_idle=is_idle,
        is_counted=not watermark.is_idle,
        idle_from_us=watermark.idle_from_us,
    )


def tree_as_json(tree: WatermarkTree, *, now_us: int) -> dict[str, Any]:
    """For scripts and monitors: every node by its name, and the platform."""
    return {
        "platform": {**_time(tree.watermark_us, now_us), "held_by": tree.held_by},
        "sinks": list(tree.sinks),
        "nodes": {
            name: {
                **_time(node.watermark_us, now_us),
                "held_by": node.held_by,
                "waits_for": node.waits_for,
                "is_idle": node.is_idle,
                "is_counted": node.is_counted,
                "idle_from": None if node.idle_from_us is None else from_us(node.idle_from_us).isoformat(),
                "inputs": list(node.inputs),
            }
            for name, node in tree.nodes.items()
        },
        "error": tree.error,
    }


def _time(watermark_us: int | None, now_us: int) -> dict[str, Any]:
    if watermark_us is None:
        return {"watermark": None, "lag_s": None}
    lag_s = round((now_us - watermark_us) / SECOND_US, 3)
    return {"watermark": from_us(watermark_us).isoformat(), "lag_s": lag_s}
