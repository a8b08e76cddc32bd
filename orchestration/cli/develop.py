"""`test` and `bench`: what a developer runs before and after a change.

Belongs here: which tools run, in which order, and what their exit codes mean.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from tidemark.cli.output import say

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
# pytest's code for "no tests were collected": no error if a whole tier was requested and it is empty.
NO_TESTS = 5
# The whole default tier runs in two processes: one has Spark, and `tests/conftest.py` says which tests those are.
# A test that hangs ends and says where; the longest takes a minute or two.
TOGETHER = ("-n", "2", "--dist", "loadscope", "--timeout", "900")
# (slow, nightly) → which tests; None is the default tier, which pyproject.toml describes.
TIERS = {
    (False, False): None,
    (True, False): "slow and not nightly",
    (False, True): "nightly",
    (True, True): "slow or nightly",
}


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--slow", is_flag=True, help="The slow tier: minutes (a browser, a running daemon, a year of partitions)."
)
@click.option("--nightly", is_flag=True, help="The long ones.")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def test(slow: bool, nightly: bool, pytest_args: tuple[str, ...]) -> None:
    """Lint, types, imports, then the tests of the default tier. With arguments for pytest, only pytest runs."""
    tier = TIERS[slow, nightly]
    with tempfile.TemporaryDirectory(prefix="tidemark-test-") as scratch:
        environment = clean_environment(Path(scratch))
        is_whole = not tier and not pytest_args
        failed = [name for name in LINTERS if not _lint(name, environment)] if is_whole else []
        chosen = TOGETHER if is_whole else (*(("-m", tier) if tier else ()), *pytest_args)
        code = run_in_checkout([sys.executable, "-m", "pytest", *chosen], environment)
    if code and not (code == NO_TESTS and tier and not pytest_args):
        failed.append("pytest")
    if failed:
        say(f"Failed: {', '.join(failed)}.")
        raise click.exceptions.Exit(1)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> None:
    """Measure against a peer on the same data; NAME is a module in benchmarks/. `--json` prints one object per line."""
    known = benchmark_names(BENCHMARKS)
    if name not in known:
        raise click.BadParameter(f"{name!r} is none of {', '.join(known) or 'nothing (benchmarks/ is empty)'}.")
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
        raise click.exceptions.Exit(exit_code(run_in_checkout(command, clean_environment(Path(scratch)))))


def benchmark_names(folder: Path) -> list[str]:
    """Modules of `folder` that can be run: those with a `main`."""
    has_main = re.compile(r"^def main\(", re.MULTILINE)
    return sorted(path.stem for path in folder.glob("[a-z]*.py") if has_main.search(path.read_text()))


def clean_environment(scratch: Path) -> dict[str, str]:
    """This environment without anything that points to a home of the developer's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "DAGSTER_"))}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return kept | {"TIDEMARK_HOME": str(scratch / "home"), "PYTHONPATH": path}


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


LINTERS: dict[str, list[str]] = {
    "ruff check": [_tool("ruff"), "check", "."],
    "ruff format": [_tool("ruff"), "format", "--check", "."],
    "mypy": [_tool("mypy")],
    "lint-imports": [_tool("lint-imports")],
}


def _lint(name: str, environment: dict[str, str]) -> bool:
    """Run one linter; its output is shown only if it found something."""
    started = time.monotonic()
    done = subprocess.run(LINTERS[name], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    say(f"{name:<13} {'ok' if done.returncode == 0 else 'failed'} ({time.monotonic() - started:.1f} s)")
    if done.returncode:
        say(done.stdout + done.stderr)
    return done.returncode == 0


def run_in_checkout(command: list[str], environment: dict[str, str]) -> int:
    """Run a command from the root of the checkout; gives its exit code."""
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def exit_code(code: int) -> int:
    """Our exit code: a process that was killed has failed, and so has one that ended with an unknown code."""
    return code if code in {0, 1, 2} else 1
