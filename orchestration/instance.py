"""The orchestrator's instance of a home: its settings file and its storage, both inside the home.

Belongs here: making and opening it. Does not belong here: running anything on it (`materialize.py`, `ui.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from resources.home import Home

if TYPE_CHECKING:
    from dagster import DagsterInstance

TEMPLATE = Path(__file__).with_name("dagster.yaml")


def ensure_instance(home: Home) -> Path:
    """The instance's directory, with its settings file; one that is there is left as it is."""
    home.dagster.mkdir(parents=True, exist_ok=True)
    target = home.dagster / "dagster.yaml"
    if not target.exists():
        target.write_text(TEMPLATE.read_text())
    return home.dagster


@contextmanager
def open_instance(home: Home) -> "Iterator[DagsterInstance]":
    """The home's instance, for as long as it is needed."""
    from dagster import DagsterInstance

    with DagsterInstance.from_config(str(ensure_instance(home))) as instance:
        yield instance
