"""The orchestrator's storage is read by SQL: Dagster, asked the same by its own API, gives the same answers.

Whoever upgrades Dagster finds here what its tables, its bodies or its settings have come to mean.
"""

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.backfill import (
    BULK_ACTION_TERMINAL_STATUSES,
    BulkActionsFilter,
    BulkActionStatus,
    PartitionBackfill,
)
from dagster._core.instance.config import dagster_instance_config_schema
from dagster._core.instance.ref import InstanceRef
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemotePartitionSetOrigin, RemoteRepositoryOrigin
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from assets.trust import CHECK_NAME
from orchestration import run_records, run_storage
from orchestration.instance import EVENTS_FILE, RUNS_FILE, open_instance
from orchestration.run_status import RunsUnreadableError, read_run_status
from orchestration.storage_settings import (
    SETTINGS,
    PostgresServer,
    SqliteFiles,
    StorageError,
    read_storage_settings,
)
from tests.support.live import TEN_O_CLOCK
from tests.support.orchestrator import judge, materialize, refuse
from tidemark.model.timegrid import SECOND_US, to_us
from tidemark.storage.home import Home

HOURS = [f"2026-03-02-{hour:02d}:00" for hour in range(6)]
TABLES = ("deltas", "minute_counts", "wiped_once")


@dg.op
def stumble() -> None:
    raise ValueError("The tide was out.")


@dg.job
def walk() -> None:
    stumble()


def backfill(status: BulkActionStatus, **fields: Any) -> PartitionBackfill:
    return PartitionBackfill(status.value, status, False, {}, TEN_O_CLOCK / SECOND_US, **fields)


def partition_set() -> RemotePartitionSetOrigin:
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="nowhere"))
    return RemotePartitionSetOrigin(
        repository_origin=RemoteRepositoryOrigin(location, "repository"), partition_set_name="walk_partition_set"
    )


def fill(instance: dg.DagsterInstance) -> None:
    """One of everything that is asked for."""
    walk.execute_in_process(instance=instance, raise_on_error=False, tags={"tide": "low"})
    for status in set(dg.DagsterRunStatus) - {dg.DagsterRunStatus.QUEUED}:  # which needs a code location
        selection = frozenset({dg.AssetKey(["sea", "deltas"]), dg.AssetKey("minute_counts")})
        run = dg.DagsterRun("__ASSET_JOB", run_id=status.value, status=status, asset_selection=selection)
        instance.add_run(run)
    for each in BulkActionStatus:
        instance.add_backfill(backfill(each, asset_selection=[dg.AssetKey("minute_counts"), dg.AssetKey("deltas")]))
    instance.add_backfill(backfill(BulkActionStatus.REQUESTED, title="By its title")._replace(backfill_id="titled"))
    by_set = backfill(BulkActionStatus.REQUESTED, partition_set_origin=partition_set())
    instance.add_backfill(by_set._replace(backfill_id="by set"))
    for table in (*TABLES, "wiped"):
        materialize(instance, table, HOURS[:4])
        judge(instance, table, HOURS[:2])
        judge(instance, table, HOURS[1:3], passed=False, message="Wrong. Look.")
        refuse(instance, table, HOURS[5], "Never materialized.")
    materialize(instance, "minute_counts", HOURS[1:2])
    instance.wipe_assets([dg.AssetKey("wiped"), dg.AssetKey("wiped_once")])
    materialize(instance, "wiped_once", HOURS[:1])
    instance.report_runless_asset_event(dg.AssetMaterialization(dg.AssetKey("drain")))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("storage") / "home").create()
    with open_instance(made) as instance:
        fill(instance)
    return made


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    with open_instance(home) as opened:
        yield opened


def test_the_statuses_are_dagsters() -> None:
    finished = {status.value for status in FINISHED_STATUSES}
    assert set(run_records.FINISHED_RUNS) == finished
    assert set(run_records.UNFINISHED_RUNS) == {status.value for status in dg.DagsterRunStatus} - finished
    ended = {status.value for status in BULK_ACTION_TERMINAL_STATUSES}
    assert set(run_records.UNFINISHED_BACKFILLS) == {status.value for status in BulkActionStatus} - ended
    assert dg.DagsterEventType.RUN_FAILURE.value == run_records.RUN_FAILURE
    assert dg.DagsterEventType.ASSET_MATERIALIZATION.value == run_records.MATERIALIZATION
    assert {status.value for status in AssetCheckExecutionRecordStatus} == {"PLANNED", "SUCCEEDED", "FAILED"}


def test_runs_are_those_that_dagster_tells_of(home: Home, instance: dg.DagsterInstance) -> None:
    statuses = (*run_records.UNFINISHED_RUNS, *run_records.FINISHED_RUNS)
    found = run_storage.ask(home, lambda storage: run_records.read_runs(storage, statuses, 100))
    assert found == [
        run_records.StoredRun(
            run_id=record.dagster_run.run_id,
            job_name=record.dagster_run.job_name,
            status=record.dagster_run.status.value,
            assets=sorted(key.to_user_string() for key in record.dagster_run.asset_selection or ()),
            tags=dict(record.dagster_run.tags),
            created_us=to_us(record.create_timestamp),
            started_us=round(record.start_time * SECOND_US) if record.start_time else None,
            ended_us=round(record.end_time * SECOND_US) if record.end_time else None,
        )
        for record in instance.get_run_records()
    ]
    assert any(run.started_us and run.ended_us and run.tags for run in found)


def test_a_runs_failure_is_the_one_that_dagster_tells_of(home: Home, instance: dg.DagsterInstance) -> None:
    records = instance.fetch_run_status_changes(dg.DagsterEventType.RUN_FAILURE, limit=10).records
    [failed] = records
    run_ids = [failed.run_id, dg.DagsterRunStatus.FAILURE.value]
    found = run_storage.ask(home, lambda storage: run_records.read_failures(storage, run_ids))
    data = failed.event_log_entry.get_dagster_event().job_failure_data
    assert data.first_step_failure_event
    error = data.first_step_failure_event.step_failure_data.error
    assert error
    assert error.cause
    step = data.first_step_failure_event.step_key
    assert found == {failed.run_id: f"{step}: {error.cause.message.strip()}"}


def test_backfills_are_those_that_dagster_tells_of(home: Home, instance: dg.DagsterInstance) -> None:
    unfinished = [status for status in BulkActionStatus if status not in BULK_ACTION_TERMINAL_STATUSES]
    found = run_storage.ask(home, run_records.read_backfills)
    assert found == [
        run_records.StoredBackfill(
            backfill_id=told.backfill_id,
            status=told.status.value,
            assets=sorted(key.to_user_string() for key in told.asset_selection or ()),
            partition_set=told.partition_set_name,
            title=told.title,
            created_us=round(told.backfill_timestamp * SECOND_US),
        )
        for told in instance.get_backfills(BulkActionsFilter(statuses=unfinished))
    ]
    assert {told.partition_set for told in found} == {None, "walk_partition_set"}


def test_materializations_and_verdicts_are_those_that_dagster_tells_of(
    home: Home, instance: dg.DagsterInstance
) -> None:
    events = instance.event_log_storage

    def by_sql(storage: run_storage.Storage) -> dict[str, tuple[dict[str, int], dict[str, Any]]]:
        return {
            table.name: (
                run_records.read_materializations(storage, table),
                {
                    partition: (verdict.status, verdict.event, verdict.target)
                    for partition, verdict in run_records.read_verdicts(storage, table, CHECK_NAME).items()
                },
            )
            for table in run_records.read_tables(storage)
        }

    found = run_storage.ask(home, by_sql)
    assert list(found) == [key.to_user_string() for key in events.all_asset_keys()] == sorted((*TABLES, "drain"))
    for name, (materialized, verdicts) in found.items():
        key = dg.AssetKey(name)
        kind = dg.DagsterEventType.ASSET_MATERIALIZATION
        expected = dict(events.get_latest_storage_id_by_partition(key, kind))
        if name == "drain":  # it has no partitions
            expected[""] = instance.fetch_materializations(key, limit=1).records[0].storage_id
        assert materialized == expected
        assert verdicts == {
            info.partition_key or "": (
                info.latest_execution_status.value,
                info.latest_check_event_storage_id,
                info.latest_target_materialization_storage_id,
            )
            for info in events.get_asset_check_partition_info([dg.AssetCheckKey(key, CHECK_NAME)])
        }
    assert list(found["wiped_once"][0]) == HOURS[:1]
    assert len(found["deltas"][1]) == 4


def test_a_verdicts_description_is_the_one_that_dagster_tells_of(home: Home, instance: dg.DagsterInstance) -> None:
    key = dg.AssetCheckKey(dg.AssetKey("deltas"), CHECK_NAME)
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    found = run_storage.ask(
        home, lambda storage: list(run_records.read_descriptions(storage, [record.id for record in records]))
    )
    assert sorted(found) == sorted(
        (str(record.partition), (record.evaluation and record.evaluation.description) or "") for record in records
    )
    assert (HOURS[2], "Wrong. Look.") in found


def test_names_of_settings_are_those_of_dagsters_schema() -> None:
    assert dagster_instance_config_schema().keys() == SETTINGS


def settle(tmp_path: Path, settings: str) -> Home:
    home = Home(tmp_path / "home").create()
    (home.dagster / "dagster.yaml").write_text(settings)
    return home


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        ("", None),
        ("telemetry:\n  enabled: false\n", None),
        ("storage:\n  sqlite:\n    base_dir: /tides\n", "/tides"),
        ("storage:\n  sqlite:\n    base_dir:\n      env: TIDES\n", "/from/the environment"),
    ],
)
def test_the_files_are_where_dagster_would_look(
    tmp_path: Path, settings: str, base: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDES", "/from/the environment")
    home = settle(tmp_path, settings)
    found = read_storage_settings(home)
    assert found == SqliteFiles(Path(base) if base else home.dagster)
    data = InstanceRef.from_dir(str(home.dagster)).storage_data
    assert data is not None
    assert data.class_name == "DagsterSqliteStorage"
    if base is None:
        assert Path(data.config_dict["base_dir"]) == home.dagster


POSTGRES_DB = """
storage:
  postgres:
    postgres_db:
      hostname: db.example
      port: {env: PG_PORT}
      username: {env: PG_USER}
      db_name: tides
      params: {sslmode: verify-full}
"""


def test_the_driver_is_told_what_the_settings_and_the_environment_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG_PORT", "5433")
    monkeypatch.setenv("PG_USER", "reader")
    parts = {"host": "db.example", "port": 5433, "user": "reader", "password": "", "dbname": "tides"}
    found = read_storage_settings(settle(tmp_path, POSTGRES_DB))
    assert found == PostgresServer({**parts, "sslmode": "verify-full"})
    by_url = "storage: {postgres: {postgres_url: 'postgresql+psycopg2://u@db.example/tides'}}"
    assert read_storage_settings(settle(tmp_path, by_url)) == PostgresServer({"dsn": "postgresql://u@db.example/tides"})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("[]", "no mapping"),
        ("storage: {}", "names one of"),
        ("storage: {mysql: {mysql_url: here}}", 'kind "mysql"'),
        ("run_storage: {module: here, class: There}", '"run_storage" is not read here'),
        ("storage: {sqlite: {}}", '"base_dir" is missing'),
        ("storage: {sqlite: {base_dir: {environment: TIDES}}}", "only {env: NAME}"),
        ("storage: {sqlite: {base_dir: {env: NO_SUCH_VARIABLE}}}", '"NO_SUCH_VARIABLE"'),
        ("storage: {postgres: {}}", "exactly one of"),
        ("storage: {postgres: {postgres_url: a, auth_provider: {gcp_wif: {}}}}", "auth_provider"),
        (POSTGRES_DB, "is no number"),
    ],
)
def test_settings_that_cannot_be_read_say_what_is_wrong(
    tmp_path: Path, settings: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG_PORT", "a secret")
    with pytest.raises(StorageError) as raised:
        read_storage_settings(settle(tmp_path, settings))
    assert reason in str(raised.value)
    assert "a secret" not in str(raised.value)


class Server:
    """What psycopg2 shows of itself, with the SQLite files of a home behind it."""

    Error = type("Error", (Exception,), {})

    def __init__(self, home: Home) -> None:
        self.home, self.calls = home, list[Any]()

    def connect(self, **options: Any) -> Any:
        self.calls.append(options)
        if "dsn" in options:
            raise self.Error("connection refused")
        database = sqlite3.connect(self.home.dagster / RUNS_FILE)
        database.execute("ATTACH ? AS events", (str(self.home.dagster / EVENTS_FILE),))

        def cursor() -> Any:
            inner = database.cursor()
            return SimpleNamespace(
                execute=lambda question, values: inner.execute(question.replace("%s", "?"), values),
                fetchall=inner.fetchall,
            )

        return SimpleNamespace(
            cursor=cursor, close=database.close, set_session=lambda **session: self.calls.append(session)
        )


def test_a_server_is_asked_the_same_and_only_reads(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(home)
    monkeypatch.setitem(sys.modules, "psycopg2", server)
    url = "storage: {postgres: {postgres_db: {hostname: h, username: u, db_name: d}}}"
    found = read_run_status(settle(tmp_path, url), now_us=TEN_O_CLOCK)
    assert found == read_run_status(home, now_us=TEN_O_CLOCK)
    assert server.calls[1] == {"isolation_level": "REPEATABLE READ", "readonly": True}
    with pytest.raises(RunsUnreadableError, match="Error: connection refused"):
        read_run_status(settle(tmp_path, "storage: {postgres: {postgres_url: here}}"), now_us=TEN_O_CLOCK)
