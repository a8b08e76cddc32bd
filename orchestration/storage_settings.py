"""Which storage the orchestrator's settings file names, found without the orchestrator.

Belongs here: what `dagster.yaml` says of the storage, as Dagster itself understands it. Does not belong here: opening
that storage (`run_storage.py`). All other settings are the orchestrator's own, and whoever starts it hears if they are
wrong; here only their names are looked at, because a misspelt `storage` would otherwise be read as none.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from orchestration.instance import SETTINGS_FILE
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import Home

# As in Dagster's schema; a test holds the two together.
SETTINGS = frozenset(
    {
        "auto_materialize",
        "backfills",
        "code_servers",
        "compute_logs",
        "concurrency",
        "defs_state_storage",
        "event_log_storage",
        "freshness",
        "instance_class",
        "local_artifact_storage",
        "nux",
        "python_logs",
        "retention",
        "run_coordinator",
        "run_launcher",
        "run_monitoring",
        "run_queue",
        "run_retries",
        "run_storage",
        "schedule_storage",
        "schedules",
        "scheduler",
        "secrets",
        "sensors",
        "storage",
        "telemetry",
    }
)
# Settings that put runs or events where they cannot be found by reading `storage`.
NOT_READ = ("instance_class", "run_storage", "event_log_storage")
POSTGRES_PORT = 5432


class StorageError(TidemarkError):
    """The storage cannot be found or read, and why."""


class SqliteFiles(NamedTuple):
    """SQLite files under a directory."""

    base: Path


class PostgresServer(NamedTuple):
    """A PostgreSQL database, by what its driver is told."""

    options: dict[str, Any]


def read_storage_settings(home: Home) -> SqliteFiles | PostgresServer:
    """Where runs and events are: the files inside the home, if the settings name nothing else."""
    settings = _load(home.dagster / SETTINGS_FILE)
    for name in settings:
        if name not in SETTINGS:
            raise StorageError(f'unexpected config entry "{name}"')
    for name in NOT_READ:
        if settings.get(name):
            raise StorageError(f'"{name}" is not read here; name the storage as "storage: postgres" or "sqlite"')
    if "storage" not in settings:
        return SqliteFiles(home.dagster)
    kind, value = _only(settings["storage"])
    if kind == "sqlite":
        return SqliteFiles(Path(_text(value, "base_dir")))
    if kind == "postgres":
        return PostgresServer(_postgres(value))
    raise StorageError(f'a storage of the kind "{kind}" is not read here; "postgres" and "sqlite" are')


def _load(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return {}
    settings = yaml.safe_load(text)
    if not isinstance(settings, dict | None):
        raise StorageError("the settings are no mapping")
    return settings or {}


def _only(storage: Any) -> tuple[str, Any]:
    if not isinstance(storage, dict) or len(storage) != 1:
        raise StorageError('"storage" names one of postgres, mysql, sqlite, custom')
    [(kind, value)] = storage.items()
    return str(kind), value


def _postgres(value: Any) -> dict[str, Any]:
    """What psycopg2 is told: an address as it stands, or its parts."""
    if isinstance(value, dict) and value.get("auth_provider"):
        raise StorageError('a login by "auth_provider" is not supported here; give a username and a password')
    if not isinstance(value, dict) or ("postgres_url" in value) == ("postgres_db" in value):
        raise StorageError('"postgres" has exactly one of postgres_url and postgres_db')
    if "postgres_url" in value:
        scheme, separator, rest = _text(value, "postgres_url").partition("://")
        # SQLAlchemy's way to name a driver too, as in postgresql+psycopg2, which PostgreSQL's own does not know.
        return {"dsn": f"{scheme.partition('+')[0]}{separator}{rest}"}
    parts = value["postgres_db"]
    return {
        "host": _text(parts, "hostname"),
        "port": _port(parts),
        "user": _text(parts, "username"),
        "password": _text(parts, "password", ""),
        "dbname": _text(parts, "db_name"),
        **(parts.get("params") or {}),
    }


def _port(parts: dict[str, Any]) -> int:
    port = parts.get("port", POSTGRES_PORT)
    try:
        return int(_value(port))
    except ValueError:
        # Without the value: an environment may hold secrets.
        raise StorageError(f"the port, {port}, is no number") from None


def _text(settings: Any, name: str, default: str | None = None) -> str:
    found = settings.get(name, default) if isinstance(settings, dict) else None
    if found is None:
        raise StorageError(f'the required config entry "{name}" is missing')
    return str(_value(found))


def _value(setting: Any) -> Any:
    """A setting as it stands, or from the variable that `env` names."""
    if not isinstance(setting, dict):
        return setting
    if set(setting) != {"env"}:
        raise StorageError(f"instead of a value there may be only {{env: NAME}}, and not {sorted(map(str, setting))}")
    value = os.environ.get(str(setting["env"]))
    if value is None:
        raise StorageError(f'the environment variable "{setting["env"]}", which the settings name, is not set')
    return value
