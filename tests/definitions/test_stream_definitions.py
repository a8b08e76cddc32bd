"""The examples in `streams/` as assets: in a process of its own, because tables are decided by the first import."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.windows import every_example

ROOT = Path(__file__).resolve().parents[2]

ASK = """
import json
import dagster as dg
from assets.tables import GRAPH, TABLES
from assets.windows.catalog import STREAMS
from orchestration.build import build_defs

graph = build_defs().resolve_asset_graph()
MOMENTS = [1773205200000000, 1773014400000000]  # 2026-03-11 05:00, a Wednesday, and the Monday before, 00:00


def shown(name, parent, key):
    # The partitions of an input that a partition is made of, as Dagster knows them; none if it is told any.
    node, source = graph.get(dg.AssetKey(name)), graph.get(dg.AssetKey(parent))
    mapping = node.partition_mappings[source.key]
    if isinstance(mapping, dg.AllPartitionMapping):
        return None
    subset = node.partitions_def.subset_with_partition_keys([key])
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(
        subset, node.partitions_def, source.partitions_def
    )
    return sorted(found.partitions_subset.get_partition_keys())


def declared(derived, parent, key):
    # The same by the graph.
    start = derived.spec.grain.start(key)
    needs = [need for need in derived.needs if need.table.name == parent]
    found = {each for need in needs for each in need.inputs_of(start, derived.spec.grain.width_us(start))}
    return [TABLES[parent].grain.key(each) for each in sorted(found)]


print(json.dumps({
    "defined": [*STREAMS.streams, *STREAMS.joins],
    "tables": list(GRAPH),
    "assets": {
        key.to_user_string(): {
            "parents": sorted(parent.to_user_string() for parent in graph.get(key).parent_keys),
            "automated": graph.get(key).automation_condition is not None,
            "mapping": {
                parent.to_user_string(): repr(graph.get(key).partition_mappings.get(parent))
                for parent in graph.get(key).parent_keys
            },
        }
        for key in graph.get_all_asset_keys()
    },
    "inputs": [
        (name, parent, [need.by for need in derived.needs if need.table.name == parent], *found)
        for name, derived in GRAPH.items()
        for parent in derived.inputs
        for key in {derived.spec.grain.key(moment): None for moment in MOMENTS}
        for found in [(shown(name, parent, key), declared(derived, parent, key))]
    ],
    "checked": sorted(key.asset_key.to_user_string() for key in graph.asset_check_keys),
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    examples = every_example(tmp_path_factory.mktemp("streams"))
    environment = {**os.environ, "TIDEMARK_STREAMS": str(examples)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_stream_is_an_asset_with_a_check_that_follows_its_input(told: dict[str, Any]) -> None:
    """O4: adding a stream is adding a file."""
    for name in ("item_views", "item_buys", "trending_items", "van_temperatures", "fleet_arrivals", "late_deltas"):
        assert told["assets"][name]["parents"] == ["deltas"]
        assert told["assets"][name]["automated"]
        assert name in told["checked"]
        assert name in told["tables"]


def test_dagster_and_the_graph_name_the_same_inputs_of_a_partition(told: dict[str, Any]) -> None:
    """O3: they are told apart only where the log or the tables say more than the time: Dagster is shown no less."""
    compared = set()
    for name, parent, ways, shown, declared in told["inputs"]:
        if shown is None:
            assert set(ways) & {"receipt", "stamp", "batch"}, name
        elif "meeting" in ways:
            assert set(declared) < set(shown), name
        else:
            assert shown == declared, (name, parent)
            compared.add(name)
    assert {"minute_counts", "daily_counts", "weekly_counts", "item_views", "trending_items"} <= compared


def test_dagster_is_told_which_hours_an_hour_is_made_of(told: dict[str, Any]) -> None:
    """O3: the mapping says what the graph says: the same hour, some after it, or any."""
    mappings = {name: told["assets"][name]["mapping"].get("deltas", "") for name in told["tables"]}
    assert "end_offset=0" in mappings["item_views"]
    assert "end_offset=1" in mappings["trending_items"]
    assert "AllPartitionMapping" in mappings["fleet_arrivals"]
    assert "AllPartitionMapping" in mappings["van_temperatures"]
