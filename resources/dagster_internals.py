"""The parts of Dagster that are not its public interface and are still needed: the one place that imports them.

Belongs here: names from modules whose path has a part that begins with an underscore, each with why it is needed and
what would replace it. Importing this imports Dagster. Does not belong here: names that `dagster` itself exports, and
anything of our own. Dagster is pinned; `tests/definitions/test_dagster_internals.py` says which name has changed when
another version is tried, and that no other module of the product imports a private module.

Some methods are as undocumented as these names, though they are on public classes: those of the instance's storage of
events that return the last materialization and the last check of each partition, because the public methods of
`DagsterInstance` answer for one partition at a time. The same test covers them.
"""

from dagster._cli.api import execute_run_command
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionsFilter, BulkActionStatus
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, AssetKeyTable, SqlEventLogStorageTable
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import create_daemons_from_instance, daemon_controller_from_instance
from dagster._daemon.daemon import DagsterDaemon
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._grpc import server_watcher
from dagster._grpc.types import ExecuteRunArgs
from dagster._record import copy
from dagster._serdes import serialize_value

__all__ = [
    # Which backfills are not finished: the argument of `DagsterInstance.get_backfills`, which is public.
    # An export of its filter would replace it and the other two.
    "BULK_ACTION_TERMINAL_STATUSES",
    # A check of a range of partitions yields one evaluation for each, which names the materialization that it is about;
    # without it the partition counts as not checked. An `AssetCheckResult` that takes such a target would replace it.
    "AssetCheckEvaluationTargetMaterializationData",
    # How a check of a partition ended, as the storage of events answers for all partitions of a table at once. A public
    # method of `DagsterInstance` for that question would replace both.
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionRecordStatus",
    # The tables of events and of check results: the last of each partition, of many assets with one question. Methods
    # of `DagsterInstance` that take several assets would replace all three.
    "AssetCheckExecutionsTable",
    # As `AssetCheckExecutionsTable`: when an asset was wiped.
    "AssetKeyTable",
    # As `BULK_ACTION_TERMINAL_STATUSES`.
    "BulkActionStatus",
    "BulkActionsFilter",
    # How a run launcher reports to the daemon's monitoring whether a run is alive. `dagster` exports the launcher to
    # derive from, and not these two, which its method has to return; an export would replace them.
    "CheckRunHealthResult",
    # The daemon, which `dagster-daemon run` starts: the class of its parts, all of them, and the whole. Settings for
    # how often it reads the definitions again, and for looking at the queue of runs only when one was added, would
    # replace these and `QueuedRunCoordinatorDaemon` and `WorkspaceFileTarget`.
    "DagsterDaemon",
    # What a launcher would start as a process of its own, `dagster api execute_run`, is called in a process that was
    # forked from one that has imported everything: its argument, and the command. A public way to execute a run that
    # was created before would replace both, and `serialize_value`.
    "ExecuteRunArgs",
    # Settings that hold for this process only, over those of the file: `DagsterInstance.from_config` takes none.
    "InstanceRef",
    # The argument of a launcher's `launch_run`; as `CheckRunHealthResult`.
    "LaunchRunContext",
    # For runs whose output is not captured. A setting of the instance that says so would replace it.
    "NoOpComputeLogManager",
    # As `DagsterDaemon`: the part that starts queued runs.
    "QueuedRunCoordinatorDaemon",
    # The answer of a sensor's `evaluate_tick`: `RangeSensor` joins its requests for neighbouring partitions. A way
    # to ask `AutomationConditionSensorDefinition` for ranges without a backfill would replace it.
    "SensorExecutionData",
    # As `AssetCheckExecutionsTable`.
    "SqlEventLogStorageTable",
    # Which file changes with every event of every run: sensors wait for that. A public way to wait for events would
    # replace it.
    "SqliteEventLogStorage",
    # As `CheckRunHealthResult`.
    "WorkerStatus",
    # As `DagsterDaemon`: where the daemon finds the server of definitions.
    "WorkspaceFileTarget",
    # A changed copy of a frozen record of Dagster, such as `SensorExecutionData`; goes with it.
    "copy",
    # As `DagsterDaemon`.
    "create_daemons_from_instance",
    # As `DagsterDaemon`.
    "daemon_controller_from_instance",
    # As `ExecuteRunArgs`.
    "execute_run_command",
    # As `ExecuteRunArgs`: the form in which the command takes its argument.
    "serialize_value",
    # How often the pages and the daemon ask the server of definitions whether it is another one. A setting would
    # replace it.
    "server_watcher",
]
