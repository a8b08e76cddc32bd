"""`kill -9` of a drain in a warm host, of its Spark and of the host: nothing is lost or counted twice (C7, O2)."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestration.warm_host import client
from tests.support.batch import FORGETFUL, rows_of, send
from tests.support.live import TEN_O_CLOCK
from tests.support.live import signal as delta
from tests.support.running import COMMAND_LIMIT_S, TIDEMARK, environment, wait_until
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home").create(FORGETFUL)
    yield made
    client.stop(made)


def drain(home: Home, **extra: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(TIDEMARK), "drain", "--json", "--home", str(home.root)],
        env=environment(TIDEMARK_WARM="1", **extra),
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_LIMIT_S,
    )


def test_a_warm_drain_that_is_killed_anywhere_is_finished_by_the_next_one(home: Home) -> None:
    expected = 0

    def send_one() -> None:
        nonlocal expected
        send(home, [delta(f"delta-{expected}", at=TEN_O_CLOCK - expected * HOUR_US)], producer=f"sender_{expected}")
        expected += 1

    for step in ("plan.written", "dead_letters.committed", "deltas.committed", "rollup.committed"):
        send_one()
        died = drain(home, TIDEMARK_FAILPOINT=step)
        assert (died.returncode, died.stdout) == (128 + signal.SIGKILL, ""), died.stderr
        assert "run the same command again" in died.stderr
    state = client.describe(home)
    assert state is not None, "the host lives on"

    send_one()
    psutil.Process(state["spark_pid"]).kill()
    wait_until("there is another Spark", lambda: client.describe(home), lambda now: now != state, limit_s=120.0)
    assert drain(home).returncode in {0, 1}

    send_one()
    psutil.Process(state["pid"]).kill()
    done = drain(home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(rows_of(home, "deltas", "delta_id")) == expected
    assert sum(count for (count,) in rows_of(home, "weekly_counts", "count")) == expected
