"""What is used of Dagster without being public is there, has the shape that is relied on, and is used in one place."""

import importlib.metadata
import re
from pathlib import Path

import dagster as dg
import pytest

from assets.names import PARTITION, RANGE_END, RANGE_START
from tests.support.private_parts import PRODUCT, ROOT, imported_names, is_private, missing, modules_used, sources

INTERNALS = ROOT / "resources" / "dagster_internals.py"
LIBRARIES = sorted(
    {
        package
        for package in importlib.metadata.packages_distributions()
        if package == "dagster" or package.startswith("dagster_")
    }
)
KEY = dg.AssetCheckKey(dg.AssetKey("table"), "suite")

# What is relied on of each name: parameters of a call, and fields or members.
SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "AssetCheckEvaluationTargetMaterializationData": ((), ("storage_id", "run_id", "timestamp")),
    "AssetCheckExecutionsTable": ((), ("c",)),
    "AssetKeyTable": ((), ("c",)),
    "SqlEventLogStorageTable": ((), ("c",)),
    "BULK_ACTION_TERMINAL_STATUSES": ((), ()),
    "BulkActionStatus": ((), ("REQUESTED", "COMPLETED_SUCCESS")),
    "BulkActionsFilter": ((), ("statuses",)),
    "InstanceRef": ((), ("from_dir",)),
    "NoOpComputeLogManager": ((), ()),
    "SensorExecutionData": (("run_requests",), ("run_requests",)),
    "CheckRunHealthResult": (("status", "msg"), ()),
    "WorkerStatus": ((), ("RUNNING", "NOT_FOUND")),
    "AssetCheckExecutionRecord": ((), ("status", "evaluation")),
    "AssetCheckExecutionRecordStatus": ((), ("SUCCEEDED", "FAILED")),
    "copy": (("record", "kwargs"), ()),
    "LaunchRunContext": (("dagster_run", "workspace"), ("dagster_run",)),
    "ExecuteRunArgs": (("job_origin", "run_id", "instance_ref"), ()),
    "execute_run_command": ((), ("main",)),
    "serialize_value": (("val",), ()),
    "server_watcher": ((), ("WATCH_INTERVAL", "create_grpc_watch_thread")),
    "DagsterDaemon": ((), ()),
    "QueuedRunCoordinatorDaemon": (("interval_seconds",), ("run_iteration",)),
    "WorkspaceFileTarget": ((), ("create_origins",)),
    "create_daemons_from_instance": (("instance",), ()),
    "daemon_controller_from_instance": (
        ("instance", "workspace_load_target", "gen_daemons", "log_level"),
        (),
    ),
    "SqliteEventLogStorage": ((), ("path_for_shard",)),
}
# Methods of public classes that Dagster does not document, with the parameters that are given to them.
METHODS: dict[tuple[str, str], tuple[str, ...]] = {
    ("dagster", "AutomationConditionSensorDefinition.evaluate_tick"): ("context",),
    ("dagster", "DagsterInstance.event_log_storage"): (),
    ("dagster", "DagsterInstance.get_backfills"): ("filters",),
    ("dagster", "DagsterInstance.get_runs_count"): ("filters",),
    ("dagster", "DagsterInstance.get_sensor_settings"): (),
    ("dagster", "DefaultRunLauncher.check_run_worker_health"): ("run",),
    ("dagster", "DefaultRunLauncher.launch_run"): ("context",),
    ("dagster", "DefaultRunLauncher.terminate"): ("run_id",),
    ("dagster", "DefaultRunLauncher.supports_check_run_worker_health"): (),
    ("dagster", "RunRequest.with_replaced_attrs"): ("kwargs",),
}


def changed(what: str) -> str:
    return (
        f"Dagster {dg.__version__} has changed: {what}. Read in {INTERNALS.relative_to(ROOT)} what it is needed for "
        "and what would replace it; use that, or stay with the version before."
    )


@pytest.mark.parametrize(
    ("module", "name"), imported_names(INTERNALS, "dagster"), ids=lambda value: str(value).rpartition(".")[2]
)
def test_every_private_name_has_the_shape_that_is_relied_on(module: str, name: str) -> None:
    assert name in SHAPES, f"Say in SHAPES what is relied on of {name}."
    parameters, fields = SHAPES[name]
    what = missing(module, name, parameters, fields)
    assert not what, changed(what)


def test_every_private_name_is_listed_with_a_reason_and_with_its_shape() -> None:
    from resources import dagster_internals

    listed = set(dagster_internals.__all__)
    assert listed == {name for _, name in imported_names(INTERNALS, "dagster")} == SHAPES.keys()
    first_lines = re.findall(r"__all__ = \[\n(.*)\n", INTERNALS.read_text())
    assert [line.strip()[0] for line in first_lines] == ["#"], "say in a comment why it is needed"


@pytest.mark.parametrize(("module", "method"), METHODS)
def test_every_undocumented_method_takes_what_it_is_given(module: str, method: str) -> None:
    what = missing(module, method, METHODS[module, method])
    assert not what, changed(what)


def test_the_storage_of_events_tells_the_last_materialization_and_the_last_check_of_each_partition() -> None:
    from resources.dagster_internals import AssetCheckEvaluationTargetMaterializationData as Target
    from resources.dagster_internals import AssetCheckExecutionRecordStatus as Status

    with dg.DagsterInstance.ephemeral() as instance:
        for hour in ("ten", "eleven"):
            instance.report_runless_asset_event(dg.AssetMaterialization(KEY.asset_key, partition=hour))
        storage = instance.event_log_storage
        numbers = storage.get_latest_storage_id_by_partition(
            KEY.asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION, {"ten", "eleven"}
        )
        target = Target(storage_id=numbers["ten"], run_id="run", timestamp=1.0)
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                KEY.asset_key, KEY.name, passed=False, partition="ten", target_materialization_data=target
            )
        )
        [info] = storage.get_asset_check_partition_info([KEY])
        last = storage.get_latest_asset_check_execution_by_key([KEY])[KEY]

    known = (info.partition_key, info.latest_execution_status, info.latest_target_materialization_storage_id)
    assert known == ("ten", Status.FAILED, numbers["ten"]), changed("a check's record")
    assert last.status is Status.FAILED, changed("the last check's status")
    assert last.evaluation is not None, changed("the last check's evaluation")
    assert last.evaluation.target_materialization_data == target, changed("the last check's target")


def test_tags_are_those_that_dagster_gives_runs_of_partitions() -> None:
    from tests.support.dagster_internals import tags

    given = tags.PARTITION_NAME_TAG, tags.ASSET_PARTITION_RANGE_START_TAG, tags.ASSET_PARTITION_RANGE_END_TAG
    assert given == (PARTITION, RANGE_START, RANGE_END), changed("the tags of partitions; see assets/names.py")


def test_nothing_else_uses_a_private_module_of_dagster() -> None:
    """Tests have a module of their own, for what only they need."""
    uses = [
        use
        for path in sources(*PRODUCT, "tests")
        if path not in {INTERNALS, ROOT / "tests" / "support" / INTERNALS.name, Path(__file__)}
        for use in modules_used(path, LIBRARIES)
        if is_private(use.module)
    ]
    assert not uses, f"{', '.join(map(str, uses))}: import it from resources/dagster_internals.py, or do without."


def test_no_settings_name_a_private_module_of_dagster() -> None:
    named = re.compile(r"\bdagster(_\w+)?(\.\w+)*\._\w+")
    settings = [*ROOT.glob("*.yaml"), *(ROOT / "orchestration").rglob("*.yaml"), *(ROOT / "docs").rglob("*.yaml")]
    assert settings
    found = {path.name: match.group() for path in settings if (match := named.search(path.read_text()))}
    assert found == {}


def test_a_private_module_is_found_however_it_is_used(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text(
        "import dagster\nimport dagster._record\nfrom dagster import _check, AssetKey\n"
        "def later():\n    from dagster_shared._vendored import x\n"
        "command = ['-m', 'dagster._daemon', 'dagster._daemon is not a module path here']\n"
    )
    found = {use.module: use.line for use in modules_used(source, LIBRARIES) if is_private(use.module)}
    assert found == {
        "dagster._record": 2,
        "dagster._check": 3,
        "dagster_shared._vendored": 5,
        "dagster_shared._vendored.x": 5,
        "dagster._daemon": 6,
    }
