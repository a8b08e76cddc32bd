"""What the guide shows runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_lines_on_counts_in_memory_run_and_count_what_they_wrote(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/warm.md").read_text(), re.DOTALL)
    environment = {**os.environ, "TIDEMARK_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, many, resolved, speed, top = done.stdout.splitlines()
    assert (first, many, resolved) == ("1", "[1 0]", "[1 0]")
    assert float(speed) > 0
    assert top == "[Ranked(entity='item-7', count=1)]"
