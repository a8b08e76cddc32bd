"""What the guide says of sending over the network runs as it stands there, and prints what its comments say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.served import home_at, served

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/client.md").read_text(), re.DOTALL)


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs_and_prints_what_it_says(tmp_path: Path, code: str) -> None:
    with served(home_at(tmp_path / "home")) as door:
        done = subprocess.run(
            [sys.executable, "-c", code.replace("tidemark://127.0.0.1:7433", door.url)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)", code)
