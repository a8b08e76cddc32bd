"""What tests of definitions share: a home of their own that definitions find, unless a test brings another."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from orchestration.instance import open_instance
from tidemark.storage.home import HOME_VARIABLE, Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    found = Home(tmp_path / "home").create()
    monkeypatch.setenv(HOME_VARIABLE, str(found.root))
    return found


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    with open_instance(home) as found:
        yield found
