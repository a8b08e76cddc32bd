"""The command line's contracts: what goes where, how it ends, and what a question must not cost."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from orchestration.cli import develop, ui
from orchestration.cli.app import COMMANDS, main
from tests.support.live import TEN_O_CLOCK, new_home, open_platform, signal
from tidemark.cli import app
from tidemark.cli.output import answer_json
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import from_us
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pyspark", "dagster", "great_expectations", "delta", "pandas")


def loaded_after(*arguments: str) -> set[str]:
    """Heavy packages in memory after a command, which must end well."""
    code = (
        "import sys\nfrom orchestration.cli.app import main\n"
        f"code = main({list(arguments)!r}, is_own_process=True)\n"
        f"print('loaded', *[name for name in {HEAVY!r} if sys.modules.get(name)])\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.fixture
def filled_home(tmp_path: Path) -> Home:
    """Something in the log and in a table: an empty home asks nothing of the libraries behind a question."""
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        platform.producer("shop_floor").write([signal("d1"), b"{"]).wait()
    rows = pa.table({"delta_id": ["d1"], "event_hour": [from_us(TEN_O_CLOCK)]})
    write_deltalake(home.lake / "letters", rows, partition_by=["event_hour"])
    return home


@pytest.mark.parametrize("name", ["status", "checksum", "account", "verify"])
def test_a_question_needs_neither_spark_nor_the_orchestrator_nor_pandas(name: str, filled_home: Home) -> None:
    assert loaded_after(name, "--home", str(filled_home.root), "--json") == set()


def test_sending_needs_neither_spark_nor_the_orchestrator_nor_pandas(filled_home: Home, tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    file.write_text(json.dumps(signal("d2")))
    assert loaded_after("send", str(file), "--home", str(filled_home.root), "--json") == set()


@pytest.mark.parametrize("name", ["status", "checksum", "account", "verify"])
def test_an_answer_is_the_same_in_a_process_of_its_own(
    name: str, filled_home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [name, "--json", "--home", str(filled_home.root)]
    command = [sys.executable, "-m", "orchestration.cli", *arguments]
    alone = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert main(arguments) == 0
    assert timeless(json.loads(alone.stdout)) == timeless(json.loads(capsys.readouterr().out))


def timeless(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what the clock says: when it was given, and how long ago something was."""
    return {
        name: timeless(value) if isinstance(value, dict) else value
        for name, value in answer.items()
        if name not in {"at", "lag_s", "oldest_s"}
    }


def test_help_needs_neither_spark_nor_the_orchestrator() -> None:
    assert loaded_after("--help") == set()


# Arguments that a command cannot do without.
NEEDED = {
    "counts": ["e", "--namespace", "shop"],
    "top": ["--namespace", "shop", "--signal", "view"],
    "vector": ["v"],
    "windows": ["w"],
    "nearest": ["v"],
    "token": ["list"],
}
WITHOUT_A_HOME = {"send", "serve", "demo", "ui", "test", "chaos", "bench"}


@pytest.mark.parametrize("name", [entry.name for entry in COMMANDS if entry.name not in WITHOUT_A_HOME])
@pytest.mark.parametrize("place", ["typo", "downloads"])
def test_a_directory_that_is_no_home_is_an_error_and_nothing_is_created_in_it(
    name: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty answer about a mistyped directory would look like a healthy platform."""
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "notes.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    assert main([name, *NEEDED.get(name, []), "--home", str(tmp_path / place)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    said = " ".join(captured.err.split())
    assert f"There is no home at {tmp_path / place}. Correct --home or TIDEMARK_HOME" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_sending_creates_a_home(tmp_path: Path) -> None:
    (tmp_path / "day.jsonl").write_text("{}\n")
    main(["send", str(tmp_path / "day.jsonl"), "--home", str(tmp_path / "home")])
    assert main(["status", "--home", str(tmp_path / "home")]) == 0


def test_help_lists_every_command_in_its_group_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for entry in COMMANDS:
        assert f"{entry.group}:" in lines
        [line] = [line for line in lines if line.strip().startswith(f"{entry.name} ")]
        assert line.endswith(entry.summary)
        assert len(line) <= 80


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_can_be_found_and_explains_itself(entry: app.Entry, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([entry.name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: tidemark {entry.name}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["status", "--nonsense"],
        ["send"],
        ["demo", "--deltas", "few"],
        ["bench", "nonsense"],
        ["send", "no.csv"],
        ["vector", "v", "--epoch", str(1 << 63)],
        ["vector", "v", "--as-of", "0001-01-01T00:00+05:00"],
        ["compact", "--horizon", "7d"],
    ],
)
def test_wrong_usage_ends_with_2_and_says_why_on_standard_error(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(Home(tmp_path).create().root))
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error:" in captured.err


@pytest.fixture
def _failing(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command
    def fail() -> None:
        raise TidemarkError("The sea is rough. Wait for the tide.")

    monkeypatch.setattr(app._Commands, "get_command", lambda *_: fail)


@pytest.mark.usefixtures("_failing")
def test_an_error_on_purpose_ends_with_1_in_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "tidemark: The sea is rough. Wait for the tide.\n"


@pytest.mark.usefixtures("_failing")
def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debug", "status"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_damaged_settings_file_is_an_error_on_purpose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "platform.toml").write_text("shards = 'many'")
    assert main(["status", "--home", str(tmp_path)]) == 1
    assert "platform.toml is not usable" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("place", ["before", "after", "environment"])
def test_the_home_is_taken_from_either_side_of_the_command_or_the_environment(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "platform.toml").write_text("shards = 3")
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path if place == "environment" else tmp_path / "other"))
    option = ["--home", str(tmp_path)]
    arguments = {"before": [*option, "status"], "after": ["status", *option], "environment": ["status"]}[place]
    assert main([*arguments, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["shards"]) == 3


@pytest.mark.parametrize("options", [[], ["--read-only"]])
def test_the_pages_can_be_opened_read_only(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(ui, "serve", lambda _home, **arguments: started.append(arguments))
    assert main(["ui", "--home", str(tmp_path), "--port", "3210", *options]) == 0
    [arguments] = started
    assert (arguments["port"], arguments["is_read_only"]) == (3210, bool(options))


def test_the_test_command_runs_on_a_home_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", "somewhere/precious")
    monkeypatch.setenv("TIDEMARK_FAILPOINT", "plan.written")
    environment = develop.clean_environment(tmp_path)
    assert environment["TIDEMARK_HOME"] == str(tmp_path / "home")
    assert "TIDEMARK_FAILPOINT" not in environment


def run_test_command(
    monkeypatch: pytest.MonkeyPatch, codes: dict[str, int], *arguments: str
) -> tuple[int, list[list[str]]]:
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        calls.append(command)
        name = "pytest" if "pytest" in command else Path(command[0]).name
        return subprocess.CompletedProcess(command, codes.get(name, 0), "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return main(["test", *arguments]), calls


def test_test_runs_all_linters_and_then_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    code, calls = run_test_command(monkeypatch, {})
    assert code == 0
    assert [Path(call[0]).name for call in calls[:-1]] == ["ruff", "ruff", "mypy", "lint-imports"]
    assert calls[-1] == [sys.executable, "-m", "pytest", *develop.TOGETHER]


def test_arguments_go_to_pytest_and_then_only_pytest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, calls = run_test_command(monkeypatch, {}, "-k", "watermark", "tests/unit")
    assert calls == [[sys.executable, "-m", "pytest", "-k", "watermark", "tests/unit"]]


@pytest.mark.parametrize(("option", "marker"), [("--slow", "slow and not nightly"), ("--nightly", "nightly")])
def test_a_tier_is_chosen_by_its_marker(monkeypatch: pytest.MonkeyPatch, option: str, marker: str) -> None:
    _, calls = run_test_command(monkeypatch, {}, option)
    assert calls == [[sys.executable, "-m", "pytest", "-m", marker]]


@pytest.mark.parametrize("tool", ["ruff", "mypy", "lint-imports", "pytest"])
def test_test_ends_with_1_if_any_tool_found_something(monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    code, calls = run_test_command(monkeypatch, {tool: 1})
    assert code == 1
    assert len(calls) == 5


def test_an_empty_tier_is_no_failure_but_an_empty_choice_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_test_command(monkeypatch, {"pytest": develop.NO_TESTS}, "--nightly")[0] == 0
    assert run_test_command(monkeypatch, {"pytest": develop.NO_TESTS}, "-k", "typo")[0] == 1


def test_benchmarks_are_modules_with_a_main(tmp_path: Path) -> None:
    (tmp_path / "ingest.py").write_text("def main() -> int:\n    return 0\n")
    (tmp_path / "helper.py").write_text("def helper() -> None: ...\n")
    assert develop.benchmark_names(tmp_path) == ["ingest"]


def test_a_reader_who_goes_away_is_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orchestration.cli", "--help"]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        done = subprocess.run(command, cwd=ROOT, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_numbers_that_json_does_not_have_are_texts_that_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [math.inf, -math.inf, math.nan, 1.5]
    answer_json({"values": numbers, "nested": ({"x": math.inf},)})
    told = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert told == {"values": ["Infinity", "-Infinity", "NaN", 1.5], "nested": [{"x": "Infinity"}]}
    assert [str(float(each)) for each in told["values"]] == [str(each) for each in numbers]
