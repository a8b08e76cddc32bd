"""What `bench freshness` reports is what happened: Spark's logs, the time of processes, statements, rows, checks.

The logs are parts of real ones, of a drain of one delta in a process of its own and of the same on a server. Fields
that nobody reads were left out, and descriptions and plans were shortened.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.freshness_count import statement_times
from benchmarks.freshness_home import HOOK, Notes, Sent
from benchmarks.freshness_hook.sitecustomize import FOLDER_VARIABLE
from benchmarks.freshness_log import SAVE, VIEW, covered_s, read_log
from benchmarks.freshness_steps import (
    BETWEEN,
    CHECK,
    JUDGED,
    MADE,
    ORCHESTRATOR,
    PROCESS,
    QUEUE,
    WRITE,
    Mark,
    Run,
    phases_of,
    shares,
    unproven,
)
from benchmarks.freshness_streams import TOUCHED, define
from benchmarks.freshness_watch import Watch
from tidemark.storage.home import Home
from tidemark.streams.load import FOLDER, load_streams

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests" / "support" / "spark_events"
OWN, SERVER = LOGS / "own_session.jsonl", LOGS / "on_a_server.jsonl"
SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)).map(lambda span: (span[0], span[0] + span[1])))


def events(log: Path, name: str) -> int:
    return sum(json.loads(line)["Event"].endswith(name) for line in log.read_text().splitlines())


@pytest.mark.parametrize("log", [OWN, SERVER])
def test_every_job_execution_stage_and_task_of_a_log_is_counted_once(log: Path) -> None:
    work = read_log(log)
    assert len(work.jobs) == events(log, "SparkListenerJobStart")
    assert len(work.executions) == events(log, "SparkListenerSQLExecutionStart")
    assert work.stages == events(log, "SparkListenerStageSubmitted")
    assert work.tasks == events(log, "SparkListenerTaskEnd")
    assert len(work.starts_ms) == 1


def test_what_a_drain_writes_reads_the_same_in_a_session_of_its_own_and_on_a_server() -> None:
    own, server = (
        [(each.what, each.tables) for each in read_log(log).executions if each.is_write] for log in (OWN, SERVER)
    )
    assert own == server == [(SAVE, ("dead_letters",)), (SAVE, ("deltas",))]
    for log in (OWN, SERVER):
        inside = [each.what for each in read_log(log).executions if each.root == 0 and each.tables == ("dead_letters",)]
        assert inside == [SAVE, "Delta: snapshot", "Delta: snapshot"]


def test_executions_that_only_name_a_view_are_told_from_the_others() -> None:
    executions = read_log(OWN).executions
    assert [each.what for each in executions if each.is_view] == [VIEW] * 8
    assert "count" in {each.what for each in executions}
    assert "collect (expectations/evidence.py:169)" in {each.what for each in executions}


def test_a_log_that_ends_in_the_middle_of_a_line_counts_up_to_there(tmp_path: Path) -> None:
    whole = OWN.read_text().splitlines(keepends=True)
    cut = tmp_path / "cut.inprogress"
    cut.write_text("".join(whole[:8]) + whole[8][:20])
    work = read_log(cut)
    assert [each.number for each in work.executions] == [0, 1, 2]
    assert [(job.number, job.stages, job.tasks) for job in work.jobs] == [(0, 1, 1)]
    # The job began last, and nothing has ended since.
    assert work.executions[0].end_ms == work.jobs[0].start_ms == work.jobs[0].end_ms


@given(spans=SPANS)
def test_spans_that_overlap_are_covered_once(spans: list[tuple[int, int]]) -> None:
    assert covered_s(spans) * 1000 == pytest.approx(len({at for start, end in spans for at in range(start, end)}))


def a_run(begun: float, *, step: str = "item_views", is_of_daemon: bool = True) -> Run:
    starting = [Mark(begun + 10, "PIPELINE_STARTING", "", "")] if is_of_daemon else []
    return Run(
        (
            Mark(begun, "ASSET_MATERIALIZATION_PLANNED", step, ""),
            *starting,
            Mark(begun + 30, "PIPELINE_START", "", ""),
            Mark(begun + 35, "STEP_START", step, ""),
            Mark(begun + 50, MADE, step, step, "2026-03-02-14:00"),
            Mark(begun + 52, "STEP_SUCCESS", step, ""),
            Mark(begun + 53, "STEP_START", f"{step}_suite", ""),
            Mark(begun + 70, JUDGED, f"{step}_suite", step, "2026-03-02-14:00", is_passed=True),
            Mark(begun + 72, "STEP_SUCCESS", f"{step}_suite", ""),
            Mark(begun + 80, "PIPELINE_SUCCESS", "", ""),
        )
    )


def test_a_run_of_the_daemon_is_cut_into_what_its_time_was_for() -> None:
    kinds = [(phase.kind, phase.table, phase.end_ms) for phase in phases_of([a_run(100)], 0, 200, is_command=False)]
    assert kinds == [
        (BETWEEN, "", 100),
        (QUEUE, "", 110),
        (PROCESS, "", 130),
        (ORCHESTRATOR, "", 135),
        (WRITE, "item_views", 150),
        (CHECK, "item_views", 152),
        (ORCHESTRATOR, "", 153),
        (CHECK, "item_views", 170),
        (CHECK, "item_views", 172),
        (ORCHESTRATOR, "", 180),
        (BETWEEN, "", 200),
    ]


def test_what_comes_before_the_first_run_of_a_command_is_its_start() -> None:
    phases = phases_of([a_run(100, is_of_daemon=False), a_run(250, is_of_daemon=False)], 0, 400, is_command=True)
    assert [(phase.kind, phase.end_ms) for phase in phases if phase.kind in {PROCESS, BETWEEN}] == [
        (PROCESS, 100),
        (BETWEEN, 250),
        (BETWEEN, 400),
    ]


@given(starts=st.lists(st.integers(0, 300), max_size=4), end=st.integers(1, 400))
def test_phases_have_no_gaps_however_runs_overlap(starts: list[int], end: int) -> None:
    runs = [a_run(start) for start in sorted(starts) if start < end]
    phases = phases_of(runs, 0, end, is_command=False)
    assert [phase.start_ms for phase in phases] == [0, *(phase.end_ms for phase in phases)][:-1]
    assert phases[-1].end_ms == end


def test_every_job_falls_into_one_phase_and_seconds_add_up() -> None:
    work = read_log(OWN)
    begun = work.starts_ms[0] - 2_000
    run = Run(
        (
            Mark(begun, "ASSET_MATERIALIZATION_PLANNED", "drain", ""),
            Mark(begun + 500, "STEP_START", "drain", ""),
            Mark(work.executions[7].end_ms + 300, MADE, "drain", "deltas", "2026-03-02-14:00"),
            Mark(work.executions[-1].end_ms + 100, JUDGED, "drain", "deltas", "2026-03-02-14:00", is_passed=True),
        )
    )
    found = shares(phases_of([run], begun, run.marks[-1].at_ms, is_command=True), work)
    assert sum(len(share.work.jobs) for share in found) == len(work.jobs)
    assert sum(len(share.work.executions) for share in found) == len(work.executions)
    for share in found:
        parts = (share.jvm_s, share.job_s, share.planning_s, share.commit_s, share.other_s)
        assert sum(parts) == pytest.approx(share.seconds)
        assert min(parts) >= 0
    [write] = [share for share in found if share.phase.kind == WRITE]
    assert write.jvm_s == pytest.approx((work.executions[0].start_ms - begun - 500) / 1000)
    # From the last job of each of the two writes to its end.
    ends = {1: work.executions[0].end_ms, 3: work.executions[4].end_ms}
    assert write.commit_s == pytest.approx(sum(end - work.jobs[at].end_ms for at, end in ends.items()) / 1000)


def test_a_partition_without_a_check_that_passed_since_is_named() -> None:
    good, hour = a_run(100), "2026-03-02-14:00"
    assert unproven([good]) == []
    again = Run((Mark(300, MADE, "item_views", "item_views", hour),))
    assert unproven([good, again]) == [f"item_views {hour}"]
    failed = Run((Mark(310, JUDGED, "item_views_suite", "item_views", hour, is_passed=False),))
    assert unproven([good, again, failed]) == [f"item_views {hour}"]
    assert unproven([good, again, failed, a_run(400)]) == []


# Each process that burned says what it used.
BURN = """
import os, sys, time
x = 0
for n in range(6_000_000): x += n
name = sys.argv[1]
open(name + ".new", "w").write(str(time.process_time()))
os.rename(name + ".new", name)
"""
LEDGER = f"""
import json, subprocess, sys, time
from pathlib import Path
from benchmarks.freshness_ledger import FamilyLedger, adopt_orphans
adopt_orphans()
burn = {BURN!r}
ledger = FamilyLedger()
subprocess.run([sys.executable, "-c", burn, "child"], check=True)
subprocess.run(["sh", "-c", '"$0" -c "$1" grandchild; true', sys.executable, burn], check=True)
subprocess.run(["sh", "-c", '"$0" -c "$1" orphan >/dev/null 2>&1 &', sys.executable, burn], check=True)
while not Path("orphan").exists():
    time.sleep(0.01)
spent = ledger.look()
said = [float(Path(name).read_text()) for name in ("child", "grandchild", "orphan")]
print(json.dumps([spent.cpu_s, said]))
"""


def test_the_ledger_has_what_ended_what_was_waited_for_and_what_was_orphaned(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LEDGER], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, check=True
    )
    spent, said = json.loads(done.stdout)
    assert min(said) > 0.1
    # The kernel counts in hundredths. Beside what they say, processes only start and end.
    assert sum(said) - 0.1 <= spent <= sum(said) + 1.0


STATEMENTS = """
import os, sqlite3
with sqlite3.connect("some.db") as database:
    database.execute("CREATE TABLE t (n)")
    database.execute("INSERT INTO t VALUES (1)")
    database.execute("PRAGMA user_version")
    database.commit()
    database.execute("SELECT * FROM t").fetchall()
os._exit(0)
"""


def test_statements_to_sqlite_are_counted_in_a_process_that_ends_without_notice(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.statements.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(HOOK), FOLDER_VARIABLE: str(notes.statements)}
    begun = datetime.now(UTC).timestamp()
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", STATEMENTS.replace("CREATE TABLE t", "CREATE TABLE IF NOT EXISTS t")],
            cwd=tmp_path,
            env=environment,
            check=True,
        )
    times = statement_times(notes)
    assert len(times) == 2 * 3
    assert begun <= min(times) <= max(times) <= datetime.now(UTC).timestamp()


def test_a_hundred_streams_are_three_of_the_shop_and_the_rest_of_namespaces_of_their_own(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    define(home, 100)
    streams = load_streams(home.root / FOLDER).streams
    assert len(streams) == 100
    assert {name for name, stream in streams.items() if stream.source.startswith("shop/")} == TOUCHED.keys()
    assert len({stream.source for stream in streams.values()}) == 98


def test_the_watch_sees_a_commit_once_and_finds_the_row_of_the_write(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    hour = datetime(2026, 3, 2, 14, tzinfo=UTC)

    def append(table: str, column: str, value: str) -> None:
        rows = pa.table({column: [value], "event_hour": pa.array([hour], pa.timestamp("us", "UTC"))})
        write_deltalake(home.lake / table, rows, mode="append", partition_by=["event_hour"])

    append("deltas", "delta_id", "before")
    watch = Watch(home, Sent(0.0, "fresh-0", "fresh"))
    watch.look()
    assert dict(watch.commits) == {}
    append("deltas", "delta_id", "another")
    append("hourly_counts", "entity_id", "fresh")
    watch.look()
    watch.look()
    assert {table: len(times) for table, times in watch.commits.items()} == {"deltas": 1, "hourly_counts": 1}
    assert (watch.deltas_at, watch.hourly_at is None) == (None, False)
    append("deltas", "delta_id", "fresh-0")
    watch.look()
    assert watch.deltas_at is not None
    assert len(watch.commits["deltas"]) == 2
