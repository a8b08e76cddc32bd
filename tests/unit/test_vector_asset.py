"""What a fold of `vectors` says of its buckets: all of them are those of the version of `deltas` that it read (K6)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assets.vectors import asset
from assets.vectors.asset import write_vectors
from resources.home import Home
from resources.lake import Lake, TableSpec
from resources.provenance import Input
from resources.vectors.reader import Vectors
from resources.vectors.tables import BUCKETS, bucket_of
from tests.support.vector_lake import VectorLake, delta


class Rows:
    """Stands for rows, whatever is done with them; what is collected is what the test says."""

    columns = ()

    def __init__(self, *collected: dict[str, Any]) -> None:
        self._collected = collected

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: self

    def collect(self) -> Sequence[dict[str, Any]]:
        return self._collected


class LakeWithoutSpark(Lake):
    """Reads nothing, and has `vectors` written by the test's tables."""

    def __init__(self, tables: VectorLake) -> None:
        super().__init__(tables.home, spark=lambda: pytest.fail("No session is needed."))
        self._tables = tables

    def read(self, table: str, version: int | None = None) -> Any:
        return Rows()

    def replace(self, spec: TableSpec, rows: Any, *, hours: Any, made_from: Input | None = None, **_: Any) -> Any:
        self._tables.fold(is_remembered=False)
        self.provenance_file(spec.name).record(self.path(spec.name), made_from=made_from, made=hours)


@pytest.mark.parametrize("is_touched", [False, True], ids=["nothing is new for it", "one bucket has changed"])
def test_after_a_fold_every_bucket_reaches_as_far_as_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_touched: bool
) -> None:
    tables = VectorLake(Home(tmp_path / "home").create())
    tables.send([delta(1, "create", "a", [1.0]), delta(2, "create", "b", [1.0])])
    tables.fold()
    tables.send([delta(3, "replace", "a", [2.0])] if is_touched else [])
    lake = LakeWithoutSpark(tables)
    version = lake.version("deltas")
    assert version is not None
    way = {"is_fast": True, "has_parents": False, "bucket": bucket_of("demo", "a")}
    monkeypatch.setattr(asset, "touched_vectors", lambda *_: Rows(*[way] * is_touched))
    monkeypatch.setattr(asset, "go_on", lambda *_: Rows())
    write_vectors(lake, version, {0: 2})
    made = lake.provenance_file("vectors").read().partitions
    assert {bucket: each.source for bucket, each in made.items()} == dict.fromkeys(range(BUCKETS), version)
    vectors = Vectors(tables.home)
    assert vectors.unfolded("demo", vectors.moment, ["a", "b"]) == {}
