"""What `status` reads of the orchestrator: runs and backfills, without changing a byte of its storage."""

import hashlib
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.names import PARTITION, RANGE_END, RANGE_START
from orchestration import run_history, run_status
from orchestration import snapshot as snapshot_module
from orchestration.cli.app import main
from orchestration.instance import EVENTS_FILE, open_instance
from orchestration.reasons import LONGEST_REASON, in_a_line
from orchestration.run_status import RunsUnreadableError, read_run_status
from orchestration.snapshot import take_snapshot
from resources.dagster_internals import BulkActionStatus
from tests.support.dagster_internals import PartitionBackfill
from tests.support.live import TEN_O_CLOCK
from tests.support.orchestrator import judge, materialize
from tidemark.model.timegrid import SECOND_US
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
HOURS = [f"2026-03-02-{hour:02d}:00" for hour in range(6)]
WRONG = '2 rows contradict \'A count is positive. Always.\' (positive), for example {"entity_id": "item-1"}\nand more'


def contents(home: Home) -> dict[str, str]:
    """Every file of the home with its checksum; directories too."""
    return {
        str(path.relative_to(home.root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in home.root.rglob("*")
    }


def test_looking_changes_nothing(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS)
        judge(instance, "deltas", HOURS[:3])
    before = contents(home)
    take_snapshot(home, now_us=TEN_O_CLOCK)
    assert contents(home) == before


HEAVY = ("numpy", "pyarrow", "pyspark", "pandas", "great_expectations")


@pytest.mark.parametrize("has_history", [False, True])
def test_status_imports_dagster_where_it_has_a_history_and_never_arrow_spark_or_pandas(
    home: Home, has_history: bool
) -> None:
    if has_history:
        with open_instance(home) as instance:
            materialize(instance, "deltas", HOURS[:1])
    heavy = HEAVY if has_history else (*HEAVY, "dagster", "sqlalchemy")
    code = (
        "import sys\nfrom orchestration.cli.app import main\n"
        f"assert main(['status', '--json', '--home', {str(home.root)!r}], is_own_process=True) == 0\n"
        f"loaded = [name for name in {heavy!r} if sys.modules.get(name)]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ('"unjudged": 1' in done.stdout) is has_history


def test_the_page_shows_the_rest_before_the_orchestrator_is_asked(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:1])
    shown = []

    def ask(*arguments: Any, **options: Any) -> run_status.OrchestratorStatus:
        shown.append(capsys.readouterr().out)
        return read_run_status(*arguments, **options)

    monkeypatch.setattr(snapshot_module, "read_run_status", ask)
    assert main(["status", "--home", str(home.root)]) == 0
    [before] = shown
    assert [title for title in ("Shards", "Watermarks", "Tables", "Checks") if title in before] == [
        "Shards",
        "Watermarks",
        "Tables",
    ]
    assert capsys.readouterr().out.startswith("Checks, by partitions")


@pytest.mark.parametrize("settings", [None, "telemetry:\n  enabled: false\n"])
def test_where_the_orchestrator_never_ran_nothing_is_made(tmp_path: Path, settings: str | None) -> None:
    home = Home(tmp_path / "home")
    home.dagster.mkdir(parents=True)
    if settings is not None:
        (home.dagster / "dagster.yaml").write_text(settings)
    before = contents(home)
    assert read_run_status(home, now_us=TEN_O_CLOCK) == run_status.OrchestratorStatus()
    assert contents(home) == before


@pytest.mark.parametrize("name", ["a home", "a#b", "größe & co"])
def test_a_home_may_have_a_name_that_an_address_would_escape(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / name).create()
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:1])
    assert read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"].unjudged == 1


def test_a_storage_that_another_thread_writes_to_can_be_read(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:1])
        writer = threading.Thread(target=lambda: materialize(instance, "deltas", HOURS * 8))
        writer.start()
        seen = []
        while writer.is_alive():
            seen.append(read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"].unjudged)
        writer.join()
    assert seen == sorted(seen)
    assert read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"].unjudged == len(HOURS)


def test_a_log_that_a_dead_process_left_behind_is_read(home: Home) -> None:
    """A WAL file beside the database holds what is newest: reading the database alone would miss it."""
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:1])
        held = sqlite3.connect(home.dagster / EVENTS_FILE)
        held.execute("SELECT count(*) FROM event_logs").fetchone()
        materialize(instance, "deltas", HOURS[1:3])
        assert (home.dagster / f"{EVENTS_FILE}-wal").stat().st_size > 0
        assert read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"].unjudged == 3
        held.close()


def look_at_the_sea() -> None:
    raise ValueError("The tide was out.\nIt comes back at six.")


@dg.op
def stumble() -> None:
    try:
        look_at_the_sea()
    except ValueError as error:
        raise RuntimeError("The step failed.") from error


@dg.job
def walk() -> None:
    stumble()


@pytest.mark.parametrize(
    ("message", "stack", "told"),
    [
        ("AssertionError\n", ['  File "a.py", line 3, in f\n    assert x\n'], 'File "a.py", line 3, in f assert x'),
        ("AssertionError: \nassert 1 == 2\n", [], "AssertionError: assert 1 == 2"),
        ("KeyError: 'm'\n", [], "KeyError: 'm'"),
        ("a.b.OddError:\n\n", [], "a.b.OddError: it says no more"),
        ("", [], "an error without a word"),
    ],
)
def test_an_error_is_told_by_its_class_and_what_it_says_or_where_it_was_raised(
    message: str, stack: list[str], told: str
) -> None:
    assert told in in_a_line(message, stack)
    assert in_a_line(message, stack).startswith(message.split("\n", maxsplit=1)[0].rstrip(": "))
    assert len(in_a_line("E: " + "x" * 10_000, [])) == LONGEST_REASON


def test_a_failed_run_shows_the_first_line_of_its_innermost_error(home: Home) -> None:
    with open_instance(home) as instance:
        tags = {RANGE_START: HOURS[0], RANGE_END: HOURS[2]}
        walk.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
    [run] = read_run_status(home, now_us=TEN_O_CLOCK).runs
    assert (run.what, run.status, run.is_open) == ("walk", "failure", False)
    assert (run.from_partition, run.to_partition) == (HOURS[0], HOURS[2])
    assert run.error == "stumble: ValueError: The tide was out."
    assert run.seconds is not None
    assert run.seconds > 0


def test_a_run_that_was_found_dead_shows_what_was_said_of_it(home: Home) -> None:
    with open_instance(home) as instance:
        for run_id, message in (("killed", None), ("slow", "Exceeded maximum runtime of 3600 seconds.")):
            run = instance.add_run(dg.DagsterRun("walk", run_id=run_id, status=dg.DagsterRunStatus.STARTED))
            instance.report_run_failed(run, message)
    slow, killed = read_run_status(home, now_us=TEN_O_CLOCK).runs
    assert slow.error == "Exceeded maximum runtime of 3600 seconds."
    assert killed.error == "This run has been marked as failed from outside the execution context."


def test_open_runs_come_first_and_there_are_at_most_eight(home: Home) -> None:
    selection = frozenset({dg.AssetKey("minute_counts"), dg.AssetKey("hourly_counts")})
    with open_instance(home) as instance:
        for number in range(10):
            status = dg.DagsterRunStatus.STARTING if number == 0 else dg.DagsterRunStatus.SUCCESS
            run = dg.DagsterRun(
                job_name=run_history.UNNAMED_JOB,
                run_id=f"run-{number}",
                status=status,
                asset_selection=selection,
                tags={PARTITION: HOURS[0]},
            )
            instance.add_run(run)
    runs = read_run_status(home, now_us=TEN_O_CLOCK).runs
    assert [run.run_id for run in runs] == ["run-0", *(f"run-{number}" for number in range(9, 2, -1))]
    assert (runs[0].is_open, runs[0].status, runs[0].seconds) == (True, "starting", None)
    assert (runs[0].what, runs[0].from_partition) == ("hourly_counts, minute_counts", HOURS[0])
    assert runs[0].from_partition == runs[0].to_partition


def test_only_backfills_that_are_not_finished_are_shown(home: Home) -> None:
    with open_instance(home) as instance:
        for status in (BulkActionStatus.REQUESTED, BulkActionStatus.COMPLETED_SUCCESS):
            instance.add_backfill(
                PartitionBackfill(
                    backfill_id=status.value,
                    status=status,
                    from_failure=False,
                    tags={},
                    backfill_timestamp=TEN_O_CLOCK / SECOND_US,
                    asset_selection=[dg.AssetKey("minute_counts")],
                    title=None,
                    description=None,
                    run_config=None,
                )
            )
    [backfill] = read_run_status(home, now_us=TEN_O_CLOCK).backfills
    assert (backfill.what, backfill.status, backfill.at_us) == ("minute_counts", "requested", TEN_O_CLOCK)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("tides: high\n", 'unexpected config entry "tides"'),
        ("storage: 3\n", "TypeError"),
        ("storage:\n  postgres:\n    postgres_url: postgresql://nowhere/tides\n", "dagster_postgres"),
        ("storage: [\n", "ParserError"),
    ],
)
def test_settings_that_cannot_be_used_hide_the_runs_and_nothing_else(home: Home, settings: str, reason: str) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:1])
    (home.dagster / "dagster.yaml").write_text(settings)
    with pytest.raises(RunsUnreadableError, match="cannot be read"):
        read_run_status(home, now_us=TEN_O_CLOCK)
    snapshot = take_snapshot(home, now_us=TEN_O_CLOCK)
    assert len(snapshot.shards) == home.settings.shards
    assert reason in str(snapshot.orchestrator_error)
    assert str(home.dagster / "dagster.yaml") in str(snapshot.orchestrator_error)


def test_a_run_is_finished_when_the_orchestrator_calls_it_so() -> None:
    queued = dg.DagsterRunStatus.QUEUED  # which needs a code location
    for status in set(dg.DagsterRunStatus) - {queued}:
        assert dg.DagsterRun("walk", status=status).is_finished is (status in run_history.FINISHED)
    assert set(run_history.UNFINISHED) == set(dg.DagsterRunStatus) - set(run_history.FINISHED) > {queued}


def test_an_error_is_found_behind_many_later_failures(home: Home) -> None:
    with open_instance(home) as instance:
        for _ in range(2):
            walk.execute_in_process(instance=instance, raise_on_error=False)
        for number in range(run_history.FAILURES_READ + 5):
            started = dg.DagsterRun(f"job-{number}", run_id=f"run-{number}", status=dg.DagsterRunStatus.STARTED)
            instance.report_run_failed(instance.add_run(started), f"Failure {number}.")
    [failing] = read_run_status(home, now_us=TEN_O_CLOCK).failing
    assert (failing.what, failing.times, failing.error) == ("walk", 2, "stumble: ValueError: The tide was out.")


def test_a_storage_that_is_damaged_is_told_as_unreadable(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:1])
    (home.dagster / EVENTS_FILE).write_bytes(b"The tide came in." * 1_000)
    with pytest.raises(RunsUnreadableError, match=r"cannot be read: DatabaseError: .*file is not a database"):
        read_run_status(home, now_us=TEN_O_CLOCK)


def test_files_elsewhere_are_asked_where_the_settings_name_them_and_not_made(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (home.dagster / "dagster.yaml").write_text(f"storage:\n  sqlite:\n    base_dir: {elsewhere}\n")
    assert read_run_status(home, now_us=TEN_O_CLOCK) == run_status.OrchestratorStatus()
    assert not elsewhere.exists()
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:1])
    assert read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"].unjudged == 1
