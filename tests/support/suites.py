"""What a suite looks at, as frames, and what it found, as tests compare it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from expectations.results import CheckResult, name_of
from resources.session import frame_of
from tidemark.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def columns_of(spec: TableSpec) -> dict[str, pa.DataType]:
    return {column.name: column.type for column in spec.columns}


def frame(spark: "SparkSession", columns: dict[str, pa.DataType], rows: Sequence[dict[str, Any]] = ()) -> "DataFrame":
    schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
    return frame_of(spark, pa.Table.from_pylist(list(rows), schema=schema))


def failures(result: CheckResult) -> list[str]:
    """The names of the failed expectations; first those that stop the tables downstream."""
    return [name_of(each) for each in result.failed]
