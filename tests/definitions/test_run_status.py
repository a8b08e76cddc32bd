"""What `status` reads of the orchestrator: runs, backfills and verdicts, without changing a byte of its storage."""

import hashlib
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest

from assets import trust
from assets.names import CHECK_NAME, PARTITION, RANGE_END, RANGE_START
from orchestration import check_status, run_history, run_status
from orchestration import snapshot as snapshot_module
from orchestration.cli.app import main
from orchestration.instance import EVENTS_FILE, open_instance
from orchestration.materialize import hours_between
from orchestration.reasons import LONGEST_REASON, in_a_line
from orchestration.run_status import FailedCheck, RunsUnreadableError, read_run_status
from orchestration.snapshot import take_snapshot
from resources.dagster_internals import AssetCheckEvaluationTargetMaterializationData, BulkActionStatus
from tests.support.dagster_internals import PartitionBackfill
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
    """The questions that are asked meanwhile, as SQLite itself hears them; a pragma asks nothing of what is stored."""
    found: list[str] = []
    connect = sqlite3.dbapi2.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(lambda told: None if told.startswith("PRAGMA") else found.append(told))
        return connection

    with patch.object(sqlite3.dbapi2, "connect", traced):
        yield found


def test_each_partition_is_passed_failed_or_not_judged_yet(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS)
        judge(instance, "deltas", HOURS[:3])
        judge(instance, "deltas", HOURS[3:5], passed=False, message=WRONG)
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
        assert trust.unchecked(instance, "deltas") == {HOURS[5]}
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
    monkeypatch.setattr(check_status, "RESULTS_READ", 2)
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
    assert len(many) == len(few) + (len(year) - 1) // check_status.RESULTS_READ


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_are_counted_as_a_model_counts_them_that_remembers_what_was_said(home: Home, seed: int) -> None:
    chosen = Random(seed)
    made: Counter[str] = Counter()  # how often each partition was materialized
    said: dict[str, tuple[bool, bool, int]] = {}  # passed, whether it names a materialization, and which was the last
    with open_instance(home) as instance:
        for _ in range(12):
            hours = chosen.sample(HOURS, 3)
            kind = chosen.choice(["materialize", "materialize", "judge", "judge", "wrong", "refuse"])
            if kind == "refuse":
                refuse(instance, "deltas", hours[0], "It cannot be judged. Ask again.")
                said[hours[0]] = (False, False, made[hours[0]])
                continue
            about = hours if kind == "materialize" else hours[:1]
            materialize(instance, "deltas", about)
            made.update(about)
            if kind != "materialize":
                judge(instance, "deltas", about, passed=kind == "judge", message=WRONG)
                said[hours[0]] = (kind == "judge", True, made[hours[0]])
        materialize(instance, "hourly_counts", HOURS)
        judge(instance, "hourly_counts", HOURS)
        materialize(instance, "daily_counts", HOURS[:2])
    current = {hour: passed for hour, (passed, _, number) in said.items() if number == made[hour]}
    known = {hour for hour in HOURS if made[hour] or hour in said}
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found["deltas"].passed == sum(current.values())
    assert [each.partition for each in found["deltas"].failed] == sorted(
        (hour for hour, passed in current.items() if not passed), reverse=True
    )
    assert found["deltas"].unjudged == len(known - current.keys())
    assert (found["hourly_counts"].passed, found["daily_counts"].unjudged) == (len(HOURS), 2)


def judge_as_of(
    instance: dg.DagsterInstance, table: str, partition: str | None, number: int, *, passed: bool, message: str = ""
) -> None:
    """A verdict on the materialization with that number, whatever came after it."""
    target = AssetCheckEvaluationTargetMaterializationData(storage_id=number, run_id="", timestamp=0.0)
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(table),
            check_name=CHECK_NAME,
            passed=passed,
            description=message,
            partition=partition,
            target_materialization_data=target,
        )
    )


def test_what_was_wiped_does_not_count_and_what_came_after_does(home: Home) -> None:
    with open_instance(home) as instance:
        for table in ("wiped", "wiped_once"):
            materialize(instance, table, HOURS[:3])
            judge(instance, table, HOURS[:1])
            judge(instance, table, HOURS[1:2], passed=False, message=WRONG)
        [*_, first] = instance.fetch_materializations(dg.AssetKey("wiped_once"), limit=3).records
        instance.wipe_assets([dg.AssetKey("wiped"), dg.AssetKey("wiped_once")])
        judge_as_of(instance, "wiped_once", HOURS[0], first.storage_id, passed=True)  # by a run that went on meanwhile
        materialize(instance, "wiped_once", HOURS[2:4])
        judge(instance, "wiped_once", HOURS[3:4])
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found == {"wiped_once": run_status.CheckStatus(passed=1, failed=[], unjudged=1)}


@pytest.mark.parametrize("passed", [True, False])
def test_a_table_without_partitions_counts_once_it_was_judged(home: Home, passed: bool) -> None:
    key = dg.AssetKey("vector_index")
    with open_instance(home) as instance:
        for asset in ("drain", "vector_index"):
            instance.report_runless_asset_event(dg.AssetMaterialization(asset))
        [last] = instance.fetch_materializations(key, limit=1).records
        judge_as_of(instance, "vector_index", None, last.storage_id, passed=passed, message="It is odd. Look.")
        failed = [] if passed else [FailedCheck("", "It is odd")]
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks
        assert found == {"vector_index": run_status.CheckStatus(int(passed), failed, 0)}
        instance.report_runless_asset_event(dg.AssetMaterialization("vector_index"))
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found == {"vector_index": run_status.CheckStatus(0, [], 1)}


def test_what_was_said_of_a_table_before_it_had_partitions_counts_no_more(home: Home) -> None:
    with open_instance(home) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("vectors"))
        [last] = instance.fetch_materializations(dg.AssetKey("vectors"), limit=1).records
        judge_as_of(instance, "vectors", None, last.storage_id, passed=False, message="It is odd. Look.")
        materialize(instance, "vectors", ["bucket-03", "bucket-11"])
        judge(instance, "vectors", ["bucket-03"])
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found == {"vectors": run_status.CheckStatus(passed=1, failed=[], unjudged=1)}


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
