"""The index in the orchestrator (V1-V3): it follows `vectors`, is judged, and is found wrong when it is."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from assets.ingest import asset as ingest
from assets.vectors.asset import vectors
from assets.vectors.index_asset import vector_index
from assets.vectors.index_schema import PARTS, VECTOR_DICTIONARY, VECTOR_INDEX
from assets.vectors.index_step import Step, Way, pointer_rows, rows_of_parts
from expectations.checks import evaluate
from expectations.templates import suite_of
from orchestration.runs import tags_of
from orchestration.vectors import due_work
from resources.platform import TidemarkResource
from resources.record import Record
from resources.session import frame_of
from resources.spark import SparkResource
from tests.support.batch import FORGETFUL, send
from tests.support.live import TEN_O_CLOCK, HandClock, vector
from tests.support.vector_lake import VectorLake, delta
from tidemark.model.buckets import BUCKET, bucket_keys
from tidemark.storage.home import Home
from tidemark.vectors.index.state import Probing
from tidemark.vectors.index.tables import Versions
from tidemark.vectors.reading.nearest import open_index
from tidemark.vectors.reading.stored_index import pointers, read_index
from tidemark.vectors.tables import BUCKETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASSETS = [ingest.drain_asset(lambda *_: None), ingest.deltas, vectors, vector_index]


class Platform:
    """A home with vectors, an orchestrator's storage, and runs."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root).create(FORGETFUL)
        self.instance = dg.DagsterInstance.ephemeral()
        self._sent = 0
        spark = SparkResource(home=str(self.home.root), is_fast_start=True)
        self.tidemark = TidemarkResource(spark=spark, root=str(self.home.root))

    def send(self, *changes: tuple[str, str, list[float] | None]) -> None:
        """Send, drain and fold."""
        deltas = []
        for op, name, values in changes:
            self._sent += 1
            payload: dict[str, Any] = {} if values is None else {"values": values}
            deltas.append(vector(f"d{self._sent}", op, at=TEN_O_CLOCK + self._sent, vector_id=name, **payload))
        send(self.home, deltas, clock=HandClock(TEN_O_CLOCK + 60_000_000))
        self.run("drain")
        self.run("vectors")

    def run(self, *names: str) -> dg.ExecuteInProcessResult:
        tags = tags_of(bucket_keys(BUCKETS), BUCKET) if "vectors" in names else {}
        resources = {"tidemark": self.tidemark}
        return dg.materialize(ASSETS, selection=list(names), instance=self.instance, resources=resources, tags=tags)

    def verdict(self) -> dg.AssetCheckEvaluation:
        (found,) = evaluate(self.instance, self.tidemark.lake, suite_of(VECTOR_INDEX.name), [None])
        return found

    def near(self, *query: float) -> list[str]:
        with open_index(self.home, "shop") as index:
            return [each.vector_id for each in index.nearest(query, probes=1_000).neighbours]


@pytest.fixture
def platform(tmp_path: Path, spark: "SparkSession") -> Platform:
    del spark  # the one that the resource will find
    return Platform(tmp_path / "home")


@pytest.mark.slow
def test_an_index_follows_its_vectors_through_the_orchestrator_and_is_judged(platform: Platform) -> None:
    platform.send(*(("create", f"v{place}", [float(place), 1.0]) for place in range(6)))
    assert due_work(platform.instance, platform.home).tables[-1] == "vector_index"
    first = platform.run("vector_index")
    (event,) = first.asset_materializations_for_node("vector_index")
    assert (event.metadata["live"].value, event.metadata["built"].value) == (6, 1)
    assert platform.near(2.1, 1.0)[:2] == ["v2", "v3"]

    platform.send(("delete", "v2", None), ("replace", "v5", [2.5, 1.0]), ("create", "new", [2.2, 1.0]))
    assert platform.near(2.1, 1.0)[:3] == ["new", "v5", "v3"], "before the index has followed"
    second = platform.run("vector_index")
    (event,) = second.asset_materializations_for_node("vector_index")
    assert (event.metadata["upserts"].value, event.metadata["deletes"].value) == (2, 1)
    assert platform.near(2.1, 1.0)[:3] == ["new", "v5", "v3"]
    record = Record.latest(platform.instance, "vector_index")
    assert record.input_versions.keys() == {"vectors", *(spec.name for spec in PARTS)}
    assert record.durable == Record.latest(platform.instance, "vectors").durable
    assert platform.verdict().passed, platform.verdict().description


@pytest.mark.slow  # a run of its own; what is wrong with an index is found without one in the unit tests
def test_an_index_that_is_wrong_is_found_wrong(platform: Platform) -> None:
    """O4: that one which is right passes is shown by the test before."""
    tables = VectorLake(platform.home)
    tables.send([delta(epoch, "create", f"v{epoch}", [float(epoch), 1.0]) for epoch in range(1, 7)])
    tables.fold()
    platform.run("vector_index")
    _spoil(platform)
    verdict = platform.verdict()
    assert not verdict.passed
    examples = str(verdict.metadata["examples"].value)
    failed = ("indexes_are_whole", "live_vectors_are_in_one_list", "vectors_are_found_as_they_are", "recall_is")
    assert [name for name in failed if name not in examples] == []
    assert verdict.metadata["failed"].value == len(failed)


def _spoil(platform: Platform) -> None:
    """Publish an index that names a vector by an old id, and finds too little."""
    lake = platform.tidemark.lake
    (row,) = pointers(platform.home).values()
    index = read_index(platform.home, row)
    wrong_ids = index.dictionary.internal_ids.copy()
    wrong_ids[0] += 1
    wrong = replace(
        index,
        dictionary=index.dictionary._replace(internal_ids=wrong_ids),
        probing=tuple(Probing(each.metric, 1, 0.5) for each in index.probing),
    )
    names = rows_of_parts([wrong])[VECTOR_DICTIONARY.name]
    lake.replace(VECTOR_DICTIONARY, frame_of(lake.spark, names), hours=None)
    versions = Versions(**{name: lake.version(f"vector_{name}") or 0 for name in Versions._fields})
    rows = pointer_rows([Step(wrong, Way.BUILT, 0, 0)], versions, lake.version("vectors") or 0)
    lake.replace(VECTOR_INDEX, frame_of(lake.spark, rows), hours=None)
    platform.run("vector_index")  # finds nothing new, and records what lies there
