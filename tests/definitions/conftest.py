"""What tests of definitions share: a home of their own that definitions find, unless a test brings another."""

from pathlib import Path

import pytest

from tidemark.storage.home import HOME_VARIABLE, Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    found = Home(tmp_path / "home").create()
    monkeypatch.setenv(HOME_VARIABLE, str(found.root))
    return found
