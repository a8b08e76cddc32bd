"""What the demo promises before it has run: lines that work as pasted."""

import shlex
from pathlib import Path

import pytest

from orchestration.cli.app import COMMANDS
from orchestration.demo.report import ROOT, next_steps
from tidemark.storage.home import HOME_VARIABLE, Home


def commands(home: Home) -> list[list[str]]:
    """The arguments of every line that calls the program."""
    lines = [line.rpartition("| ")[2] for line, _ in next_steps(home)]
    return [shlex.split(line)[1:] for line in lines if line.startswith("./tidemark")]


def test_what_to_try_next_names_the_home_that_was_asked_for(tmp_path: Path) -> None:
    home = Home(tmp_path / "a home")
    for words in commands(home):
        assert words[:2] == ["--home", str(home.root)]
        assert words[2] in {entry.name for entry in COMMANDS}


def test_lines_for_the_default_home_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    home = Home.locate(None)
    assert ["demo"] in commands(home)
    assert not any(str(ROOT) in line for line, _ in next_steps(home))


def test_a_home_from_the_environment_needs_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    assert ["demo"] in commands(Home.locate(None))


def test_the_line_that_opens_a_table_is_one_argument_for_the_shell(tmp_path: Path) -> None:
    [line] = [line for line, _ in next_steps(Home(tmp_path)) if line.startswith(".venv/bin/python")]
    code = shlex.split(line)[2]
    compile(code, "line", "exec")
    assert f"{tmp_path}/lake/hourly_counts" in code
