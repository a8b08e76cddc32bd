"""`dagster dev` without the home's instance: nothing is computed again, and a sentence says what to do."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from orchestration import foreign
from orchestration.automation import follow_inputs_sensor
from orchestration.build import build_defs
from orchestration.compact_sensor import compact_when_due
from orchestration.foreign import ForeignInstanceError, refuse_foreign
from orchestration.instance import open_instance
from orchestration.refresh_sensor import follow_tables
from orchestration.schedules import hourly_floor, hourly_windows
from orchestration.sensors import follow_manifest, follow_vectors
from resources.record import Record
from tidemark.storage.home import Home


@pytest.fixture
def drained(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose tables hold something, by its plans."""
    monkeypatch.setattr(foreign, "durable_epochs", lambda _home: {0: 7})
    return home


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield instance


def test_every_sensor_and_schedule_of_another_instance_refuses(drained: Home, elsewhere: dg.DagsterInstance) -> None:
    defs = build_defs()
    for sensor in (follow_manifest, follow_vectors, follow_tables, compact_when_due, follow_inputs_sensor):
        context = dg.build_sensor_context(elsewhere, definitions=defs)
        with pytest.raises(ForeignInstanceError, match="everything would be computed again"):
            sensor.evaluate_tick(context)
    for schedule in (hourly_floor, hourly_windows):
        with pytest.raises(ForeignInstanceError, match="tidemark ui"):
            schedule.evaluate_tick(dg.build_schedule_context(elsewhere))


def test_the_homes_own_instance_is_none_of_another(drained: Home) -> None:
    with open_instance(drained) as instance:
        refuse_foreign(instance, drained)


def test_an_instance_elsewhere_that_has_the_records_goes_on(drained: Home, elsewhere: dg.DagsterInstance) -> None:
    record = Record(asset="drain", partition=None, generation=1, table_version=1, table_id="")
    elsewhere.report_runless_asset_event(dg.AssetMaterialization("drain", metadata=record.to_metadata()))
    refuse_foreign(elsewhere, drained)


def test_a_home_without_tables_may_begin_with_any_instance(home: Home, elsewhere: dg.DagsterInstance) -> None:
    refuse_foreign(elsewhere, home)
