"""The rehearsal of a server that starts."""

import tempfile
from pathlib import Path

import pytest

from tidemark.gateway.rehearsal import rehearse


def test_a_rehearsal_takes_every_form_of_a_write_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rehearse()
    assert list(tmp_path.iterdir()) == []
