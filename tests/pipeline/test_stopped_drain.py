"""A drain that is told to stop, by a signal to a real process: it ends soon, and the next one finishes the work."""

import signal
import subprocess
from pathlib import Path

import pytest

from orchestration.instance import open_instance
from tests.support.live import new_home, open_platform
from tests.support.live import signal as delta
from tests.support.running import TIDEMARK, environment, failed_runs, open_runs, tidemark

# What a supervisor gives a process between SIGTERM and SIGKILL, and what a busy machine may add.
ENDS_WITHIN_S = 60.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "number", "code"),
    [("computing minute_counts", signal.SIGTERM, 143), ("computing drain", signal.SIGINT, 130)],
)
def test_a_drain_that_is_told_to_stop_begins_no_further_run_and_the_next_one_finishes(
    tmp_path: Path, at: str, number: int, code: int
) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        platform.producer("web").write([delta(f"d{place}") for place in range(20)]).wait()
        platform.seal()
    command = [str(TIDEMARK), "drain", "--home", str(home.root)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        assert run.stderr
        said = next(line for line in run.stderr if at in line)
        run.send_signal(number)
        rest = run.stderr.read()
        assert run.wait(ENDS_WITHIN_S) == code, said + rest
    assert rest.strip().endswith("the same command goes on from here.")
    assert "Traceback" not in rest
    with open_instance(home) as instance:
        assert len(failed_runs(instance)) == 1
        assert not open_runs(instance)
    assert tidemark(home, "drain")["checks"]["failed"] == []
    assert tidemark(home, "account")["account"]["accepted"] == 20
