"""The one code location: it loads cheaply, and everything that is declared has its checks."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import dagster as dg
import pytest
import yaml

import orchestration.definitions
import tidemark_project.definitions
from assets.names import CHECK_NAME
from assets.partitions import PARTITIONS
from assets.tables import TABLES
from assets.windows.catalog import RESERVED
from expectations.templates import suite_of
from orchestration.build import build_defs
from orchestration.instance import open_instance
from orchestration.jobs import ROLLUP_JOBS
from orchestration.materialize import PARTITIONED
from orchestration.runs import run
from tidemark.observe.watermark_graph import table_graph
from tidemark.storage.home import Home
from tidemark.streams import Streams
from tidemark.tables.tiers import Tier

ROOT = Path(__file__).resolve().parents[2]


JOBS = {
    Tier.MINUTE: "rollups_job",
    Tier.HOUR: "rollups_job",
    Tier.DAY: "days_job",
    Tier.WEEK: "weeks_job",
    Tier.MONTH: "months_job",
}


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    return build_defs()


def test_definitions_load_without_a_jvm_and_without_great_expectations() -> None:
    program = (
        "import sys; import orchestration.definitions; from pyspark import SparkContext; "
        "assert SparkContext._gateway is None; assert 'great_expectations' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_the_asset_graph_is_the_operator_graph(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    assert parents == {
        "drain": set(),
        "refresh": {"drain"},
        "deltas": {"drain"},
        "dead_letters": {"drain"},
        "minute_counts": {"deltas"},
        "hourly_counts": {"minute_counts"},
        "daily_counts": {"hourly_counts"},
        "weekly_counts": {"daily_counts"},
        "monthly_counts": {"daily_counts"},
        "windowed_counts": {"minute_counts", "hourly_counts", "daily_counts", "weekly_counts"},
        "vectors": {"deltas"},
        "vector_conflicts": {"deltas"},
        "vector_checkpoints": {"deltas"},
        "vector_index": {"vectors"},
    }


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_blocking_check_with_its_partitions(defs: dg.Definitions, table: str) -> None:
    """O4: suites run as asset checks, and the ones that guard data are blocking."""
    graph = defs.resolve_asset_graph()
    check = graph.get(dg.AssetCheckKey(dg.AssetKey(table), CHECK_NAME))
    assert check.blocking
    assert check.partitions_def == graph.get(dg.AssetKey(table)).partitions_def
    assert check.description
    assert "- No two" in check.description


def test_all_hourly_assets_have_the_same_partitions(defs: dg.Definitions) -> None:
    """Otherwise a range over several of them would not be one run (O2)."""
    graph = defs.resolve_asset_graph()
    hourly = {
        graph.get(dg.AssetKey(t)).partitions_def for t in ("deltas", "dead_letters", "minute_counts", "hourly_counts")
    }
    assert len(hourly) == 1


@pytest.mark.parametrize("table", [name for name, spec in TABLES.items() if not spec.is_whole])
def test_a_range_of_partitions_is_one_run(defs: dg.Definitions, table: str) -> None:
    """O2: a backfill of N partitions is one Spark job."""
    policy = defs.resolve_asset_graph().get(dg.AssetKey(table)).backfill_policy
    assert policy is not None
    assert policy.max_partitions_per_run is None


def test_the_jobs_exist_and_run_in_one_process(defs: dg.Definitions) -> None:
    rollups = ("rollups_job", "days_job", "weeks_job", "months_job")
    for name in ("drain_job", "rebuild_job", *rollups, "windows_job", "vectors_job"):
        assert defs.resolve_job_def(name).executor_def.name == "in_process"
    assert defs.resolve_implicit_global_asset_job_def().executor_def.name == "in_process"


@pytest.mark.parametrize("tier", Tier)
def test_everything_that_a_tier_of_counts_has_follows_from_its_declaration_r1(defs: dg.Definitions, tier: Tier) -> None:
    graph = defs.resolve_asset_graph()
    node = graph.get(dg.AssetKey(tier.table))
    assert node.group_name == "rollups"
    assert node.partitions_def == PARTITIONS[tier.partition_grain]
    assert node.automation_condition is not None
    [source] = node.parent_keys
    mapping = node.partition_mappings[source]
    assert source == dg.AssetKey(tier.source)
    assert isinstance(mapping, dg.TimeWindowPartitionMapping)
    assert (mapping.start_offset, mapping.end_offset, mapping.allow_nonexistent_upstream_partitions) == (0, 0, True)
    assert [job.name for job in ROLLUP_JOBS if dg.AssetKey(tier.table) in job.selection.resolve(graph)] == [JOBS[tier]]
    assert tier.table in PARTITIONED[tier.partition_grain]
    assert table_graph(Streams(), ()).inputs[tier.table] == (tier.source,)
    assert suite_of(tier.table).table == tier.table
    assert tier.table in RESERVED


def test_the_pickling_io_manager_is_never_used(defs: dg.Definitions) -> None:
    for asset in defs.assets or []:
        assert isinstance(asset, dg.AssetsDefinition)
        assert [output.dagster_type.is_nothing for output in asset.op.output_defs] == [True]


def test_workspace_yaml_and_tool_dg_name_the_same_code_location() -> None:
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())
    [location] = [entry["python_file"] for entry in workspace["load_from"]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert location["relative_path"] == "orchestration/definitions.py"
    assert project["code_location_target_module"] == tidemark_project.definitions.__name__
    assert tidemark_project.definitions.defs is orchestration.definitions.defs
    assert location["location_name"] == project["code_location_name"]


def test_the_orchestrators_own_check_of_the_project_passes() -> None:
    program = Path(sys.executable).with_name("dg")
    done = subprocess.run([program, "check", "defs"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_graph_shows_that_the_drain_fills_the_first_tables() -> None:
    graph = build_defs().resolve_asset_graph()
    for table in ("deltas", "dead_letters"):
        assert graph.get(dg.AssetKey(table)).parent_keys == {dg.AssetKey("drain")}


def test_the_run_of_a_command_says_what_it_was_about(home: Home) -> None:
    """The pages show it as the run's target."""
    with open_instance(home) as instance:
        assert run(home, instance, ["drain"], (), None).succeeded
        [found] = instance.get_runs()
    assert found.asset_selection == {dg.AssetKey("drain")}
