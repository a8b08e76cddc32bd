"""Suites of streams and joins are made from templates: each is evaluated where runs are, on a Spark server (O4)."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from assets.graph import Derived, graph_of
from assets.tables import TABLES
from assets.windows.catalog import derived_tables
from expectations import templates
from expectations.runner import run_suite
from expectations.templates import TEMPLATES, suite_of
from tests.support.live import TEN_O_CLOCK
from tests.support.suites import columns_of, frame
from tests.support.windows import every_example
from tidemark.model.timegrid import HOUR, HOUR_US, from_us
from tidemark.streams import Streams, load_streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEN, ELEVEN = HOUR.key(TEN_O_CLOCK), HOUR.key(TEN_O_CLOCK + HOUR_US)
# An example of each.
EXAMPLES = {
    "sums": "hourly_counts",
    "panes": "item_buys",
    "open": "item_visits_open",
    "sessions": "item_visits",
    "batches": "shop_batches",
    "pairs": "views_and_buys",
    "session_pairs": "visits_and_edits",
    "late_deltas": "late_deltas",
}
OF_RECORDS = ("rows_out", "rows_found", "watermark_us", "previous_watermark_us")
OF_SHARDS = ("applied_epoch", "flushed_epoch", "durable_epoch", "previous_durable_epoch", "highest_epoch")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return load_streams(every_example(tmp_path_factory.mktemp("streams")))


def test_every_template_has_an_example_here() -> None:
    assert {path.stem for path in TEMPLATES.glob("*.yaml")} == set(EXAMPLES)


@pytest.mark.parametrize("table", EXAMPLES.values(), ids=EXAMPLES)
def test_o4_a_suite_from_a_template_is_evaluated_and_finds_the_hour_whose_record_is_wrong(
    table: str, examples: Streams, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hours without rows, of one of which the record says that it has some."""
    monkeypatch.setattr(templates, "STREAMS", examples)
    graph: dict[str, Derived] = graph_of(derived_tables(examples))
    specs = TABLES | {name: derived.spec for name, derived in graph.items()}
    suite = suite_of(table)
    hour = {suite.partition: pa.timestamp("us", tz="UTC")}
    records = [
        {suite.partition: from_us(TEN_O_CLOCK), "rows_out": 0, "rows_found": 0},
        {suite.partition: from_us(TEN_O_CLOCK + HOUR_US), "rows_out": 1, "rows_found": 0},
    ]
    views = {
        "records": frame(spark, {**hour, **dict.fromkeys(OF_RECORDS, pa.int64())}, records),
        "shards": frame(spark, {**hour, "shard": pa.int32(), **dict.fromkeys(OF_SHARDS, pa.int64())}),
    }
    views["edits"] = frame(spark, {**hour, "version": pa.int64(), "operation": pa.string()})
    views |= {name: frame(spark, columns_of(specs[name])) for name in suite.reads}
    batch = frame(spark, columns_of(specs[table]))

    good, wrong = run_suite(suite, batch, partitions=[TEN, ELEVEN], views=views)

    assert good.passed, good.message
    assert not wrong.passed
    assert len(good.validation.results) == len(suite.expectations)
