"""`status` without an orchestrator: lags, what waits for the lake, the page, the JSON, and looking again and again."""

import io
import json
import os
import pty
import signal as signals
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from orchestration.cli import status
from orchestration.cli.app import main
from orchestration.cli.status import watch_home
from orchestration.cli.status_view import status_view
from orchestration.reasons import first_sentence
from orchestration.run_status import (
    BackfillStatus,
    CheckStatus,
    FailedCheck,
    FailingStatus,
    OrchestratorStatus,
    RunStatus,
)
from orchestration.snapshot import Snapshot, snapshot_as_json, take_snapshot
from tests.support.live import TEN_O_CLOCK, HandClock, new_home, open_platform, signal
from tidemark.cli.output import duration
from tidemark.model.timegrid import HOUR_US, MINUTE_US, SECOND_US
from tidemark.observe.home_status import Pending, read_pending
from tidemark.observe.status import read_status
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
NOON = TEN_O_CLOCK + 2 * HOUR_US


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two segments, sealed five minutes apart."""
    made, clock = new_home(tmp_path / "home", "shards = 1\n"), HandClock()
    for number in range(2):
        with open_platform(made, clock) as platform:
            platform.producer(f"p{number}").write([signal(f"d{number}-{each}") for each in range(3)]).wait()
        clock.advance(300)
    return made


def pauses(count: int) -> Callable[[float], None]:
    """A pause that is interrupted with Ctrl-C the last time."""
    left = iter(range(count - 1))

    def pause(_seconds: float) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return pause


def printed(snapshot: Snapshot) -> str:
    page = io.StringIO()
    Console(file=page, width=120, markup=False, highlight=False, emoji=False).print(status_view(snapshot))
    return page.getvalue()


def empty_snapshot(orchestrator: OrchestratorStatus, error: str | None = None) -> Snapshot:
    return Snapshot("/home", NOON, [], {}, Pending(), {}, orchestrator=orchestrator, orchestrator_error=error)


def test_a_streams_lag_is_the_time_since_its_watermark(home: Home) -> None:
    [shard] = read_status(home)
    answer = snapshot_as_json(take_snapshot(home, now_us=shard.watermarks["shop/signal"] + 90 * SECOND_US))
    assert answer["watermarks"]["shop/signal"]["lag_s"] == 90.0
    assert answer["watermarks"]["shop/signal"]["watermark"].startswith("2026-03-02T")


def test_sealed_segments_wait_until_they_are_in_the_lake(home: Home) -> None:
    shards = read_status(home)
    [shard] = shards
    everything = read_pending(home, shards, {})
    assert (everything.segments, everything.rows, everything.oldest_us) == (2, 6, TEN_O_CLOCK)
    second = read_pending(home, shards, {0: 1})
    assert (second.segments, second.rows, second.oldest_us) == (1, 3, TEN_O_CLOCK + 5 * MINUTE_US)
    assert 0 < second.bytes < everything.bytes
    assert read_pending(home, shards, {0: shard.sealed_epoch}) == Pending()


def test_the_json_has_its_keys_and_is_json(home: Home) -> None:
    answer = json.loads(json.dumps(snapshot_as_json(take_snapshot(home, now_us=TEN_O_CLOCK + 600 * SECOND_US))))
    assert list(answer) == [
        "home",
        "at",
        "shards",
        "watermarks",
        "event_time",
        "pending",
        "tables",
        "runs",
        "failing",
        "backfills",
        "checks",
        "orchestrator_error",
        "warm_host",
    ]
    assert answer["pending"]["oldest_s"] == 600.0
    assert set(answer["pending"]) == {"segments", "rows", "bytes", "oldest_s"}
    assert (answer["runs"], answer["backfills"], answer["checks"], answer["orchestrator_error"]) == ([], [], {}, None)


def test_asking_makes_nothing(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.dagster.rmdir()
    before = sorted(tmp_path.rglob("*"))
    assert main(["status", "--home", str(home.root)]) == 0
    assert main(["status", "--home", str(tmp_path / "nowhere")]) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_the_page_says_what_waits_and_for_how_long(home: Home) -> None:
    text = printed(take_snapshot(home, now_us=TEN_O_CLOCK + 2 * HOUR_US))
    assert "Sealed and not in the lake yet: 2 segments, 6 deltas" in text
    assert "the oldest for 2 h 0 min. Not sealed yet: 0 B of log." in text


def test_what_is_wrong_stands_at_the_end() -> None:
    failed = [FailedCheck(f"2026-03-02-{hour:02d}:00", "1 row contradicts '[b]it[/b]'") for hour in range(12)]
    run = RunStatus("r1", "drain_job", None, None, "failure", False, TEN_O_CLOCK, 61.0, "DamageError: It is gone.")
    open_run = RunStatus("r2", "minute_counts", "b", "c", "queued", True, NOON, None, more_partitions=("a",))
    backfill = BackfillStatus("bf", "hourly_counts", "requested", NOON)
    checks = {"deltas": CheckStatus(passed=5, failed=failed, unjudged=2)}
    failing = [FailingStatus("item_buys", "b", "c", 7, TEN_O_CLOCK, NOON, "item_buys: DamageError: It is gone.")]
    text = printed(empty_snapshot(OrchestratorStatus([open_run, run], [backfill], checks, failing), "Nobody knows."))
    lines = [line.rstrip() for line in text.splitlines()]
    assert " deltas        5       12                 2" in lines
    assert " 2026-03-02 10:00:00   drain_job                           failure   1 min 1 s" in lines
    assert " 2026-03-02 12:00:00   minute_counts   b to c and 1 more   queued" in lines
    assert " 2026-03-02 12:00:00   hourly_counts   requested   bf" in lines
    end = lines.index("UNKNOWN: Nobody knows.")
    assert lines[end + 1] == "FAILED: drain_job, 2026-03-02 10:00:00: DamageError: It is gone."
    again = "KEEPS FAILING: item_buys b to c, 7 times since 2026-03-02 10:00:00: item_buys: DamageError: It is gone."
    assert lines[end + 2] == again
    assert lines[end + 3] == "FOUND WRONG: deltas 2026-03-02-00:00: 1 row contradicts '[b]it[/b]'"
    assert lines[-1] == "FOUND WRONG: deltas: 2 more partitions; --json names all"
    assert len(lines) == end + 3 + 11


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (59.99, "60.0 s"),
        (61, "1 min 1 s"),
        (3_600, "1 h 0 min"),
        (7_384, "2 h 3 min"),
        (86_400, "1 d 0 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("", ""),
        ("It is gone. Restore it.", "It is gone"),
        ("2 rows contradict 'A. B.' (name), for example {\"x\": 1}\nmore", "2 rows contradict 'A. B.' (name)"),
        ("One line\nand another", "One line"),
    ],
)
def test_the_first_sentence_shows_no_rows(message: str, sentence: str) -> None:
    assert first_sentence(message) == sentence


def test_watching_prints_one_json_line_each_time(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    clock = HandClock(NOON)
    watch_home(home, every_s=2, as_json=True, now_us=clock, pause=pauses(3))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert {line["at"] for line in lines} == {"2026-03-02T12:00:00+00:00"}


def test_watching_into_a_file_prints_one_page_each_time(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    watch_home(home, every_s=2, as_json=False, now_us=HandClock(NOON), pause=pauses(2))
    assert capsys.readouterr().out.count(f"Home {home.root}") == 2


def test_watching_on_a_terminal_draws_in_place(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(status, "console", lambda: Console(file=screen, force_terminal=True, width=120, height=60))
    watch_home(home, every_s=2, as_json=False, now_us=HandClock(NOON), pause=pauses(3))
    assert "\x1b[1A\x1b[2K" in screen.getvalue()  # one line up, and clear it


def test_a_watcher_outlives_what_is_wrong_at_one_moment(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = next(home.segments(0).glob("manifest-*.jsonl"))
    whole = manifest.read_bytes()
    manifest.write_bytes(whole.replace(b'"rows":3', b'"rows":4'))

    pause = pauses(2)

    def repair(seconds: float) -> None:
        manifest.write_bytes(whole)
        pause(seconds)

    watch_home(home, every_s=2, as_json=True, now_us=HandClock(NOON), pause=repair)
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert "Restore it from a backup" in first["error"]
    assert second["pending"]["segments"] == 2


def test_a_home_that_is_being_written_can_be_watched(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home", "shards = 1\n")
    is_done = threading.Event()

    def write() -> None:
        for number in range(12):
            with open_platform(home) as platform:
                platform.producer(f"p{number}").write([signal(f"d{number}")]).wait()
        is_done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not is_done.is_set():
        [shard] = take_snapshot(home, now_us=NOON).shards
        seen.append(shard.sealed_epoch)
    writer.join()
    assert seen == sorted(seen)
    assert take_snapshot(home, now_us=NOON).pending.rows == 12


def test_ctrl_c_on_a_terminal_ends_watching_with_0(home: Home) -> None:
    """In a process of its own, on a real terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "orchestration.cli", "status", "--watch", "--every", "0.1"]
    with subprocess.Popen(
        [*command, "--home", str(home.root)],
        cwd=ROOT,
        stdout=follower,
        stderr=follower,
        stdin=follower,
        # Whoever runs the tests behind a shell's back has it ignored, and a process inherits that.
        preexec_fn=lambda: signals.signal(signals.SIGINT, signals.SIG_DFL),  # noqa: PLW1509 - no thread runs here
    ) as watcher:
        os.close(follower)
        shown = b""
        while shown.count(b"Home ") < 2:
            try:
                shown += os.read(leader, 4096)
            except OSError:  # it has ended
                pytest.fail(f"it ended with {watcher.wait()}: {shown.decode()}")
        watcher.send_signal(signals.SIGINT)
        deadline = time.monotonic() + 30
        while watcher.poll() is None and time.monotonic() < deadline:
            try:
                os.read(leader, 4096)
            except OSError:
                break
        assert watcher.wait(timeout=30) == 0
    os.close(leader)


@pytest.mark.parametrize("every", ["0", "-1", "soon"])
def test_a_pause_is_a_positive_number_of_seconds(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--watch", "--every", every]) == 2
    assert "--every" in capsys.readouterr().err
