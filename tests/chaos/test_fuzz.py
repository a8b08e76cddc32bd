"""A minute of coverage-guided fuzzing of everything that reads bytes from strangers (W3): no crash, no growth."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
# The libraries alone take 150 MB, and no input is larger than 16 KB.
MOST_MB = 400

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(10 * SECONDS),
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this Python."),
]

# As a patch of the product, for a search that has to find something.
PLANTED = """
import sys
from pathlib import Path
import msgspec
from tests.support import fuzz
fuzz.messages.decode = lambda payload, kind: msgspec.json.decode(payload, type=kind)
fuzz.main(int(sys.argv[1]), Path(sys.argv[2]))
"""


def fuzzed(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_w3_a_minute_of_fuzzing_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = fuzzed("-m", "tests.support.fuzz", str(SECONDS), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3_000:]
    said = {name: int(number) for name, number in re.findall(r"stat::(\w+):\s+(\d+)", done.stderr)}
    coverage = re.findall(r"cov: (\d+)", done.stderr)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{said['number_of_executed_units']:,} inputs in {SECONDS} s, {said['new_units_added']} of which reached "
            f"something new (from {coverage[0]} to {coverage[-1]} places), {said['peak_rss_mb']} MB at most\n"
        )
    assert said["peak_rss_mb"] < MOST_MB
    assert said["new_units_added"] > 100, "the search was guided"


def test_a_refusal_that_is_none_is_found(tmp_path: Path) -> None:
    done = fuzzed("-c", PLANTED, str(SECONDS), str(tmp_path))
    assert done.returncode != 0
    assert "DecodeError" in done.stdout + done.stderr
    assert list(tmp_path.glob("crash-*"))
