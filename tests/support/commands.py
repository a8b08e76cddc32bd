"""Commands, run in this process."""

import pytest

from orchestration.cli.app import main
from tidemark.storage.home import Home


def ask(home: Home, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code of a command on a home, and what it wrote to standard output and standard error."""
    code = main([*arguments, "--home", str(home.root)])
    said = capsys.readouterr()
    return code, said.out, said.err
