"""What `status` reads of the orchestrator: runs, backfills and verdicts, without changing a byte of its storage."""

import hashlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from assets import requested, trust
from orchestration import run_status
from orchestration.instance import EVENTS_FILE, open_instance
from orchestration.materialize import hours_between
from orchestration.run_records import LONGEST_REASON, in_a_line
from orchestration.run_status import FailedCheck, RunsUnreadableError, read_run_status
from orchestration.snapshot import take_snapshot
from tests.support.live import TEN_O_CLOCK
from tests.support.orchestrator import copy_to, judge, materialize, refuse
from tidemark.model.timegrid import SECOND_US
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
HOURS = [f"2026-03-02-{hour:02d}:00" for hour in range(6)]
WRONG = '2 rows contradict \'A count is positive. Always.\' (positive), for example {"entity_id": "item-1"}\nand more'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


def contents(home: Home) -> dict[str, str]:
    """Every file of the home with its checksum; directories too."""
    return {
        str(path.relative_to(home.root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in home.root.rglob("*")
    }


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL that is executed meanwhile, as SQLite itself hears it."""
    found: list[str] = []
    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(found.append)
        return connection

    with patch.object(sqlite3, "connect", traced):
        yield found


def test_the_check_is_the_one_that_the_suites_write() -> None:
    assert run_status.CHECK_NAME == trust.CHECK_NAME


def test_the_tag_of_partitions_outside_of_a_range_is_the_one_that_runs_are_given() -> None:
    assert run_status.MORE_PARTITIONS == requested.MORE_PARTITIONS


def test_each_partition_is_passed_failed_or_not_judged_yet(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS)
        judge(instance, "deltas", HOURS[:3])
        judge(instance, "deltas", HOURS[3:5], passed=False, message=WRONG)
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
        assert trust.unjudged(instance, "deltas") == {HOURS[5]}
    assert (found.passed, found.unjudged) == (3, 1)
    assert found.failed == [
        FailedCheck(HOURS[4], "2 rows contradict 'A count is positive. Always.' (positive)"),
        FailedCheck(HOURS[3], "2 rows contradict 'A count is positive. Always.' (positive)"),
    ]


def test_a_verdict_on_earlier_rows_does_not_count(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:2])
        judge(instance, "deltas", HOURS[:1])
        judge(instance, "deltas", HOURS[1:2], passed=False, message=WRONG)
        materialize(instance, "deltas", HOURS[:2])
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
    assert (found.passed, found.failed, found.unjudged) == (0, [], 2)


def test_the_last_of_several_verdicts_counts(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:2])
        judge(instance, "deltas", HOURS[:2], passed=False, message="First. It was so.")
        judge(instance, "deltas", HOURS[:1])
        judge(instance, "deltas", HOURS[1:2], passed=False, message="Second. It is so.")
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
    assert (found.passed, found.failed, found.unjudged) == (1, [FailedCheck(HOURS[1], "Second")], 0)


def test_a_refusal_holds_until_the_next_materialization(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[1:2])
        refuse(instance, "deltas", HOURS[0], "It has never been materialized. Materialize it.")
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
        assert found.failed == [FailedCheck(HOURS[0], "It has never been materialized")]
        materialize(instance, "deltas", HOURS[:1])
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
    assert (found.failed, found.unjudged) == ([], 2)


def test_more_failures_than_are_read_at_once_have_their_messages(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_status, "VERDICTS_READ", 2)
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS)
        for hour in HOURS:
            judge(instance, "deltas", [hour], passed=False, message=f"Wrong at {hour}. Look.")
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
    assert found.failed == [FailedCheck(hour, f"Wrong at {hour}") for hour in reversed(HOURS)]


def test_the_number_of_questions_does_not_grow_with_the_partitions(home: Home) -> None:
    counts = []
    with open_instance(home) as instance:
        for hours in (HOURS[:2], HOURS):
            materialize(instance, "deltas", hours)
            judge(instance, "deltas", hours, passed=False, message=WRONG)
            with statements() as asked:
                read_run_status(home, now_us=TEN_O_CLOCK)
            counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_looking_changes_nothing(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS)
        judge(instance, "deltas", HOURS[:3])
    before = contents(home)
    take_snapshot(home, now_us=TEN_O_CLOCK)
    assert contents(home) == before


def test_runs_and_verdicts_cost_no_dagster_no_arrow_no_spark_and_no_pandas(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:1])
    code = (
        "import sys\nfrom orchestration.cli.app import main\n"
        f"assert main(['status', '--json', '--home', {str(home.root)!r}], is_own_process=True) == 0\n"
        "heavy = ('dagster', 'sqlalchemy', 'numpy', 'pyarrow', 'pyspark', 'pandas', 'great_expectations')\n"
        "loaded = [name for name in heavy if sys.modules.get(name)]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"unjudged": 1' in done.stdout


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
        tags = {run_status.RANGE_START: HOURS[0], run_status.RANGE_END: HOURS[2]}
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
                job_name=run_status.UNNAMED_JOB,
                run_id=f"run-{number}",
                status=status,
                asset_selection=selection,
                tags={run_status.PARTITION: HOURS[0]},
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


@pytest.mark.slow
def test_a_year_of_hours_costs_as_many_questions_as_a_day(home: Home) -> None:
    year = hours_between("2025-01-01-00:00", "2025-12-31-23:00")
    with open_instance(home) as instance:
        for table in ("deltas", "minute_counts"):
            materialize(instance, table, year[:1])
            judge(instance, table, year[:1], passed=table == "deltas", message=WRONG)
    with statements() as few:
        read_run_status(home, now_us=TEN_O_CLOCK)
    for table in ("deltas", "minute_counts"):
        copy_to(home, table, year[0], year[1:])
    with statements() as many:
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found["deltas"].passed == len(year) == 8_760
    assert [failed.partition for failed in found["minute_counts"].failed] == year[::-1]
    assert all(failed.message for failed in found["minute_counts"].failed)
    assert len(many) == len(few) + (len(year) - 1) // run_status.VERDICTS_READ


@pytest.mark.parametrize("seed", range(3))
def test_partitions_that_are_counted_and_partitions_that_are_looked_at_one_by_one_give_the_same(
    home: Home, seed: int
) -> None:
    chosen = Random(seed)
    with open_instance(home) as instance:
        for _ in range(12):
            hours = chosen.sample(HOURS, 3)
            match chosen.choice(["materialize", "materialize", "judge", "judge", "wrong", "refuse"]):
                case "materialize":
                    materialize(instance, "deltas", hours)
                case "judge":
                    materialize(instance, "deltas", hours[:1])
                    judge(instance, "deltas", hours[:1])
                case "wrong":
                    materialize(instance, "deltas", hours[:1])
                    judge(instance, "deltas", hours[:1], passed=False, message=WRONG)
                case _:
                    refuse(instance, "deltas", hours[0], "It cannot be judged. Ask again.")
        materialize(instance, "hourly_counts", HOURS)
        judge(instance, "hourly_counts", HOURS)
        materialize(instance, "daily_counts", HOURS[:2])
    counted = read_run_status(home, now_us=TEN_O_CLOCK).checks
    with patch.object(run_status, "MANY_UNUSUAL", -1):
        assert read_run_status(home, now_us=TEN_O_CLOCK).checks == counted
    assert (counted["hourly_counts"].passed, counted["daily_counts"].unjudged) == (len(HOURS), 2)
