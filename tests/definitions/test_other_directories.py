"""The project's folders are not installed, and are found also from a directory that has an `assets/` of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ("assets", "expectations", "orchestration", "resources")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory of somebody else's Dagster project."""
    for name in PROJECT:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise AssertionError('{name} of another project')\n")
    return tmp_path


def clean(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing says where the project is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "DAGSTER_"))}
    kept = {name: value for name, value in kept.items() if name not in {"PYTHONPATH", "PYTHONSAFEPATH"}}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return kept | {"TIDEMARK_HOME": str(tmp_path / "home"), "TIDEMARK_WARM": "0", "PATH": path}


def test_the_launcher_runs_a_command_that_needs_all_of_them(elsewhere: Path) -> None:
    """`check` imports the four folders before it finds that there is nothing to check."""
    Home(elsewhere / "home").create()
    done = subprocess.run(
        [ROOT / "tidemark", "check"], cwd=elsewhere, env=clean(elsewhere), capture_output=True, text=True, check=False
    )
    assert "There is nothing in the tables yet." in done.stderr


def test_the_workspace_is_loaded_by_dagster_itself(elsewhere: Path) -> None:
    """A code server that `dagster` starts, as the web server and the daemon do, and no variable that names a path."""
    command = ["dagster", "definitions", "validate", "-w", str(ROOT / "workspace.yaml")]
    done = subprocess.run(command, cwd=elsewhere, env=clean(elsewhere), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
