"""A small table as SQL text is the same table, whatever is in it."""

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expectations.inline import FEW_ROWS, as_sql, is_small
from resources.session import frame_of
from tidemark.tables.table_spec import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [("a b", pa.string()), ("n", pa.int64()), ("shard", pa.int32()), ("is_it", pa.bool_()), ("at", TIMESTAMP)]
)
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - the zone is given apart
ROWS = st.fixed_dictionaries(
    {
        "a b": st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
        "n": st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
        "shard": st.none() | st.integers(-(2**31) + 1, 2**31 - 1),
        "is_it": st.none() | st.booleans(),
        "at": st.none() | TIMES,
    }
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROWS, max_size=4))
def test_a_small_table_as_text_is_the_same_table(spark: "SparkSession", rows: list[dict[str, object]]) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    said = spark.sql(as_sql(table))
    assert said.collect() == frame_of(spark, table).collect()
    assert [field.dataType for field in said.schema] == [field.dataType for field in frame_of(spark, table).schema]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (SCHEMA.empty_table(), True),
        (pa.table({"n": pa.array(range(FEW_ROWS), pa.int64())}), True),
        (pa.table({"n": pa.array(range(FEW_ROWS + 1), pa.int64())}), False),
        (pa.table({"state": pa.array([b"x"], pa.binary())}), False),
    ],
    ids=["empty", "few rows", "many rows", "bytes"],
)
def test_what_is_large_or_not_easily_said_is_a_view(table: pa.Table, expected: bool) -> None:
    assert is_small(table) is expected
