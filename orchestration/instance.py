"""The orchestrator's instance of a home: its settings file and its storage, both inside the home.

Belongs here: making it, opening it, and whether there is one. Does not belong here: running anything on it
(`materialize.py`, `ui.py`), and queries of it (`run_history.py`, `check_status.py`).
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tidemark.model.errors import ConfigurationError
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from dagster import DagsterInstance

TEMPLATE = Path(__file__).with_name("dagster.yaml")
SETTINGS_FILE = "dagster.yaml"
# Where Dagster keeps runs and events when its settings say nothing else.
RUNS_FILE = Path("history") / "runs.db"
EVENTS_FILE = Path("history") / "runs" / "index.db"
# As long as dagster.yaml keeps failures; the output of an older run is of no use.
OUTPUT_KEPT_S = 90 * 86_400.0
STORAGE_SETTINGS = ("storage", "run_storage", "event_log_storage")


def ensure_instance(home: Home) -> Path:
    """The instance's directory, with its settings file; an existing file is left as it is."""
    home.dagster.mkdir(parents=True, exist_ok=True)
    target = home.dagster / SETTINGS_FILE
    if not target.exists():
        target.write_text(TEMPLATE.read_text())
    return home.dagster


def remove_old_output(home: Home, *, now_s: float) -> None:
    """Remove the printed output of old runs, which Dagster keeps for ever. The runs and their events stay."""
    for printed in (home.dagster / "storage").glob("*/compute_logs"):
        if printed.stat().st_mtime < now_s - OUTPUT_KEPT_S:
            shutil.rmtree(printed, ignore_errors=True)


def has_storage(home: Home) -> bool:
    """Whether there is anything to read; this creates no file and does not import Dagster."""
    if _has_files(home.dagster):
        return True
    try:
        settings = yaml.safe_load((home.dagster / SETTINGS_FILE).read_text())
    except FileNotFoundError:
        return False
    except yaml.YAMLError as error:
        raise ConfigurationError(
            f"{home.dagster / SETTINGS_FILE} is no YAML ({error}). Correct it, or delete it to get the defaults back."
        ) from error
    if not isinstance(settings, dict):
        return False
    match settings.get("storage"):
        case {"sqlite": {"base_dir": str(base)}}:
            # Dagster would create missing files.
            return _has_files(Path(base))
    return any(settings.get(name) for name in STORAGE_SETTINGS)


def _has_files(base: Path) -> bool:
    return all((base / file).exists() for file in (RUNS_FILE, EVENTS_FILE))


@contextmanager
def open_instance(home: Home) -> "Iterator[DagsterInstance]":
    """The home's instance for runs of this process, for as long as it is needed.

    What its runs print goes where the command was started. Captured, as in the daemon's runs, it would come from four
    helper processes a step, which print tracebacks when Ctrl-C reaches them, too.
    """
    from dagster import DagsterInstance

    from resources.dagster_internals import InstanceRef
    from resources.dagster_internals import NoOpComputeLogManager as NotCaptured

    place = ensure_instance(home)
    own = yaml.safe_load((place / SETTINGS_FILE).read_text()) or {}
    not_captured = {"module": NotCaptured.__module__, "class": NotCaptured.__name__}
    overrides = {} if "compute_logs" in own else {"compute_logs": not_captured}
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(place), overrides=overrides)) as instance:
        yield instance


@contextmanager
def existing_instance(home: Home) -> "Iterator[DagsterInstance]":
    """The instance of a home that has a storage, for reading, without making a settings file."""
    from dagster import DagsterInstance

    with DagsterInstance.from_config(str(home.dagster)) as instance:
        yield instance
