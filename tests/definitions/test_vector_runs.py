"""When the index of vectors is due (O3, O4); no JVM."""

from pathlib import Path

import dagster as dg

from expectations.checks import CHECK_NAME
from orchestration.vectors import due_tables
from resources.home import Home
from tests.support.vector_lake import VectorLake, delta


def judged(*, passed: bool) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(asset_key=dg.AssetKey("vectors"), check_name=CHECK_NAME, passed=passed)


def test_the_index_is_due_when_vectors_has_moved_on_unless_it_was_found_wrong(tmp_path: Path) -> None:
    home, instance = Home(tmp_path / "home").create(), dg.DagsterInstance.ephemeral()
    assert due_tables(instance, home) == [], "nothing was ever folded"
    tables = VectorLake(home)
    tables.send([delta(1, "create", "a", [1.0, 2.0])])
    tables.fold()
    assert due_tables(instance, home) == ["vector_index"]
    instance.report_runless_asset_event(judged(passed=False))
    assert due_tables(instance, home) == []
    instance.report_runless_asset_event(judged(passed=True))
    assert due_tables(instance, home) == ["vector_index"]
