"""The server of definitions of `ui` when somebody edits definitions; no process is started."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestration import ui
from orchestration.ui import DEFINITIONS, HOST, Children
from tidemark.storage.home import Home


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Children:
    monkeypatch.setattr(ui, "environment", lambda *_: {})
    monkeypatch.setattr(ui, "GLANCE_S", 0.0)
    monkeypatch.setattr(ui, "EDITED_EVERY_S", 0.0)
    home = Home(tmp_path / "home").create()
    return Children(home, tmp_path / "definitions", tmp_path / "waiting")


@pytest.fixture
def started(children: Children, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was started; each lives until it is asked to end."""
    names: list[str] = []

    def start(name: str, _: list[str]) -> None:
        names.append(name)
        child = SimpleNamespace(returncode=None)
        child.poll = lambda: child.returncode
        child.send_signal = lambda _: setattr(child, "returncode", 0)
        child.wait = lambda _: 0
        children._processes[name] = child  # type: ignore[assignment]

    monkeypatch.setattr(children, "start", start)
    return names


def test_every_edit_is_followed_by_a_start_at_once_however_many_there_are(
    children: Children, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = count()
    monkeypatch.setattr(ui, "stamp_of", lambda _: str(next(stamps)))
    for number in range(1, 10):
        children._look_at_definitions()
        assert started == [DEFINITIONS] * number
        assert children._processes[DEFINITIONS].poll() is None
    assert children._pauses[HOST].is_over(), "the host of before ends, too"


def test_what_dies_by_itself_waits(children: Children, started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "stamp_of", lambda _: children._stamp)
    children._look_at_definitions()
    children._processes[DEFINITIONS].send_signal(0)
    children._look_at_definitions()
    assert started == [DEFINITIONS]
