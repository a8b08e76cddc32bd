"""What the guide gives to operators is valid, by the orchestrator's own schema.

The package dagster-postgres is no dependency, so no connection is made here; the schema of its settings is in Dagster.
"""

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.instance import TEMPLATE, open_instance
from tests.support.dagster_internals import InstanceRef, InstigatorType, TickStatus, dagster_instance_config
from tidemark.storage.home import Home

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
POSTGRES = GUIDE / "dagster-postgres.yaml"
VARIABLES = {
    "DAGSTER_PG_HOST": "db.example",
    "DAGSTER_PG_PORT": "5432",
    "DAGSTER_PG_USERNAME": "tidemark",
    "DAGSTER_PG_PASSWORD": "secret of the test",
    "DAGSTER_PG_DB": "tides",
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An instance's directory with the guide's settings, in an environment that has the variables."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    shutil.copy(POSTGRES, tmp_path / "dagster.yaml")
    return tmp_path


def settings_of(directory: Path) -> dict[str, Any]:
    value, instance_class = dagster_instance_config(str(directory))
    assert instance_class is None
    return dict(value)


def test_the_postgres_settings_are_valid_by_the_orchestrators_schema(directory: Path) -> None:
    database = settings_of(directory)["storage"]["postgres"]["postgres_db"]
    assert database["params"] == {"sslmode": "verify-full"}
    found = InstanceRef.from_dir(str(directory))
    assert found.storage_data is not None
    assert found.storage_data.module_name == "dagster_postgres"


def test_no_secret_stands_in_the_postgres_settings(directory: Path) -> None:
    text = POSTGRES.read_text()
    assert all(f"env: {name}" in text for name in VARIABLES)
    assert not any(value in text for name, value in VARIABLES.items() if name != "DAGSTER_PG_PORT")


def test_the_queue_of_the_postgres_settings_is_one_that_can_be_made(directory: Path) -> None:
    coordinator = InstanceRef.from_dir(str(directory)).run_coordinator
    assert isinstance(coordinator, dg.QueuedRunCoordinator)


def test_both_settings_agree_on_writers_monitoring_and_retention(directory: Path, tmp_path: Path) -> None:
    """What one machine needs does not stop being needed with PostgreSQL."""
    shutil.copy(TEMPLATE, tmp_path / "one-machine.yaml")
    one, _ = dagster_instance_config(str(tmp_path), "one-machine.yaml")
    other = settings_of(directory)
    assert other["retention"] == one["retention"]
    assert other["telemetry"] == one["telemetry"]
    assert other["run_launcher"] == one["run_launcher"]
    monitoring = {name: other["run_monitoring"][name] for name in one["run_monitoring"]}
    assert monitoring == one["run_monitoring"]


def test_ticks_that_found_nothing_are_kept_for_a_day_and_failures_for_a_season(tmp_path: Path) -> None:
    with open_instance(Home(tmp_path / "home").create()) as instance:
        sensor = instance.get_tick_retention_settings(InstigatorType.SENSOR)
        assert (sensor[TickStatus.SKIPPED], sensor[TickStatus.FAILURE]) == (1, 90)
        assert set(instance.get_tick_retention_settings(InstigatorType.SCHEDULE).values()) == {90}


def test_the_guide_shows_the_postgres_settings() -> None:
    assert "(dagster-postgres.yaml)" in (GUIDE / "operating.md").read_text()
