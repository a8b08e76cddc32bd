"""`kill -9` of the real process at each named step of log and seal: nothing lost, nothing twice (C7)."""

import os
import signal as signals
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.live import new_home, sealed_rows
from tidemark.log.manifest import Manifest
from tidemark.storage.failpoints import FAILPOINTS
from tidemark.storage.home import Home

WRITES = 8
# Sends the same eight writes from the start every time, seals after every third, and says which are flushed.
SENDER = f"""
import sys
from pathlib import Path
from tests.support.live import HandClock, open_platform, signal
from tidemark.storage.home import Home

clock = HandClock()
with open_platform(Home(Path(sys.argv[1])), clock) as platform:
    producer = platform.producer("web", from_start=True)
    for number in range({WRITES}):
        clock.advance(1)
        producer.write([signal(f"{{number}}-{{at}}", entity=f"e{{at}}") for at in range(3)]).wait()
        print(number, flush=True)
        if number % 3 == 2:
            platform.seal()
"""
LIVE_STEPS = [name for name in FAILPOINTS if name.startswith(("log.", "seal."))]


def send(home: Home, failpoint: str | None = None) -> tuple[int, list[int]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
    environment.pop("TIDEMARK_FAILPOINT", None)
    if failpoint:
        environment["TIDEMARK_FAILPOINT"] = failpoint
    done = subprocess.run(
        [sys.executable, "-c", SENDER, str(home.root)], env=environment, stdout=subprocess.PIPE, check=False
    )
    return done.returncode, [int(line) for line in done.stdout.split()]


def assert_all_there_once(home: Home) -> None:
    rows = [row for shard in range(home.settings.shards) for row in sealed_rows(home, shard)]
    assert sorted(row["delta_id"] for row in rows) == sorted(
        f"{number}-{at}" for number in range(WRITES) for at in range(3)
    )
    assert {row["verdict"] for row in rows} == {"accepted"}
    for shard in range(home.settings.shards):
        entries = list(Manifest(home.segments(shard)).all())
        mine = sealed_rows(home, shard)
        for entry in entries:
            seen = {row["epoch"] for row in mine if entry.from_epoch <= row["epoch"] < entry.to_epoch}
            lost = {epoch for begin, end in entry.lost for epoch in range(begin, end)}
            assert seen | lost == set(range(entry.from_epoch, entry.to_epoch))
            assert not seen & lost


@pytest.mark.parametrize("step", LIVE_STEPS)
def test_a_process_killed_at_a_step_and_started_again_ends_with_every_write_once(tmp_path: Path, step: str) -> None:
    home = new_home(tmp_path, "shards = 2")
    code, acknowledged = send(home, f"{step}:2")
    assert code == -signals.SIGKILL, "the step must be reached for the test to mean anything"
    code, again = send(home)
    assert code == 0
    assert again == list(range(WRITES))
    assert acknowledged == list(range(len(acknowledged)))
    assert_all_there_once(home)


def test_killed_at_one_step_after_the_other_it_still_ends_with_every_write_once(tmp_path: Path) -> None:
    home = new_home(tmp_path, "shards = 2")
    for step in LIVE_STEPS:
        assert send(home, step)[0] == -signals.SIGKILL
    assert send(home)[0] == 0
    assert_all_there_once(home)


def test_a_failpoint_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert send(new_home(tmp_path), "log.nowhere")[0] == 1
