"""The orchestrator's instance of a home: everything inside the home, and the settings of one machine."""

from pathlib import Path

import dagster as dg
import pytest

from assets.names import CHECK_NAME
from assets.trust import unchecked
from expectations import checks
from orchestration.instance import ensure_instance, open_instance
from orchestration.ui import bound_log, commands, environment, log_of
from resources.dagster_internals import AssetCheckEvaluationTargetMaterializationData
from resources.session import SERVER_VARIABLE
from resources.spark_server import TOKEN_VARIABLE, connect, server_address, server_command
from tidemark.storage.home import Home

HOUR = "2026-03-02-10:00"


def test_the_instance_lies_in_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    with open_instance(home) as instance:
        assert Path(instance.root_directory) == home.dagster
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.run_monitoring_enabled
    assert not any(str(tmp_path) in line for line in (home.dagster / "dagster.yaml").read_text().splitlines())


def test_an_operators_settings_are_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    settings = ensure_instance(home) / "dagster.yaml"
    settings.write_text("telemetry:\n  enabled: false\n")
    ensure_instance(home)
    assert settings.read_text() == "telemetry:\n  enabled: false\n"


def test_the_pages_listen_on_this_machine_only(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    pages = commands(3210, tmp_path)["the pages"]
    assert pages[pages.index("-h") + 1] == "127.0.0.1"
    assert "--read-only" not in pages
    assert "--read-only" in commands(3210, tmp_path, is_read_only=True)["the pages"]
    assert environment(home)["DAGSTER_HOME"] == str(home.dagster)
    assert environment(home)["TIDEMARK_HOME"] == str(home.root)


def test_what_ui_starts_finds_java_though_none_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = Home(tmp_path / "home").create()
    assert Path(environment(home)["JAVA_HOME"], "bin", "java").exists()


def test_the_spark_of_all_runs_listens_on_this_machine_only_and_keeps_its_secret(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    address, other = server_address(), server_address()
    command = server_command(home, address)
    assert "spark.connect.grpc.binding.address=127.0.0.1" in command
    assert not [part for part in command if address[TOKEN_VARIABLE] in part], "anybody may read arguments"
    assert address[TOKEN_VARIABLE] != other[TOKEN_VARIABLE]


def test_a_run_that_is_told_of_no_spark_or_of_one_that_is_gone_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    assert connect() is None
    for name, value in server_address().items():
        monkeypatch.setenv(name, value)
    assert connect(patience_s=0.0) is None


def test_a_materialization_without_a_verdict_is_found(tmp_path: Path) -> None:
    """A crash between the report of an hour and its check leaves it unjudged; the next drain judges it."""
    key = dg.AssetKey("deltas")
    with open_instance(Home(tmp_path / "home").create()) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=HOUR))
        assert unchecked(instance, "deltas") == {HOUR}
        last = instance.fetch_materializations(key, limit=1).records[0]
        instance.report_runless_asset_event(_verdict(key, last))
        assert unchecked(instance, "deltas") == set()
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=HOUR))
        assert unchecked(instance, "deltas") == {HOUR}


def test_the_last_two_materializations_are_those_of_each_partition_however_often_others_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "ASKED_TOGETHER", 3)
    hours = [f"2026-03-02-{hour:02d}:00" for hour in range(8)]
    key = dg.AssetKey("deltas")
    with open_instance(Home(tmp_path / "home").create()) as instance:
        # The third is made once, before all others, which crowd it out; the fourth twice; the last one never.
        for hour in (hours[2], *hours[3:7], *hours[:2], *hours[:2], *hours[:2], hours[3]):
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=hour))
        found = checks.last_materializations(instance, "deltas", hours)
        for hour in hours:
            one = dg.AssetRecordsFilter(key, asset_partitions=[hour])
            expected = instance.fetch_materializations(one, limit=2).records
            assert [each.storage_id for each in found[hour]] == [each.storage_id for each in expected]
    assert [len(found[hour]) for hour in hours] == [2, 2, 1, 2, 1, 1, 1, 0]


def _verdict(key: dg.AssetKey, last: dg.EventLogRecord) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=CHECK_NAME,
        passed=True,
        partition=HOUR,
        target_materialization_data=AssetCheckEvaluationTargetMaterializationData(
            storage_id=last.storage_id, run_id=last.run_id, timestamp=last.timestamp
        ),
    )


def test_what_ui_and_its_children_say_is_kept_in_two_files_of_a_bounded_size(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    with log_of(home).open("ab") as child:
        child.write(b"first " * 10)
        child.flush()
        bound_log(home, limit=100)
        assert log_of(home).stat().st_size == 60, "it may grow to that"
        child.write(b"more " * 10)
        child.flush()
        bound_log(home, limit=100)
        child.write(b"after")
        child.flush()
    assert log_of(home).read_bytes() == b"after"
    assert log_of(home).with_name("ui.log.before").read_bytes() == b"first " * 10 + b"more " * 10
