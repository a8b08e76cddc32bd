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
from assets.tables import GRAPH
from assets.windows.catalog import STREAMS
from orchestration.build import build_defs

graph = build_defs().resolve_asset_graph()
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


def test_dagster_is_told_which_hours_an_hour_is_made_of(told: dict[str, Any]) -> None:
    """O3: the mapping says what the graph says: the same hour, some after it, or any."""
    mappings = {name: told["assets"][name]["mapping"].get("deltas", "") for name in told["tables"]}
    assert "end_offset=0" in mappings["item_views"]
    assert "end_offset=1" in mappings["trending_items"]
    assert "AllPartitionMapping" in mappings["fleet_arrivals"]
    assert "AllPartitionMapping" in mappings["van_temperatures"]
