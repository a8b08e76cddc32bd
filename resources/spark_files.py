"""Rows of a table from its files, and into new files, with Spark: the two ends of every transformation.

Belongs here: frames over the files that a table's log names, the constraints that each written row has to meet, and
writing Parquet. Which files a version has, and their commit, are read and written without Spark (`tidemark/tables`):
Spark would need several jobs to read a table's log, and as many to write one line of it (decision 0060). Does not
belong here: locks, markers and what is recorded of a write (`lake.py`).
"""

import json
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.model.ranges import Within, any_within
from tidemark.tables.table_files import TableFiles, spark_path
from tidemark.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_over(spark: "SparkSession", table: Path, files: TableFiles) -> "DataFrame":
    """The rows of some of a table's files, with the table's columns in their order."""
    from pyspark.sql.types import StructType

    fields = json.loads(files.schema_json)["fields"]
    # Comments and rules of the columns would only make the plan longer.
    schema = StructType.fromJson({"type": "struct", "fields": [{**field, "metadata": {}} for field in fields]})
    if not files.files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", spark_path(str(table)))
    return reader.parquet(*map(spark_path, files.files)).select(*schema.names)


def chosen(rows: "DataFrame", within: Sequence[Within] | None) -> "DataFrame":
    """The rows of these times; None stands for all rows."""
    return rows if within is None else rows.where(any_within(within))


def write_files(rows: "DataFrame", spec: TableSpec, folder: Path) -> None:
    """Write rows as Parquet files by partition into a folder that does not exist yet.

    A row that breaks a rule of the table fails the write.
    """
    checked(rows.select(*spec.names), spec).write.partitionBy(spec.partition_by).parquet(str(folder))


def checked(rows: "DataFrame", spec: TableSpec) -> "DataFrame":
    """The same rows, in a plan that fails at the first row that breaks a rule of the table's declaration."""
    from pyspark.sql import functions as F

    broken = [
        (F.expr(f"NOT coalesce({rule}, false)"), f"A row of {spec.name} breaks the rule {name}: {rule}.")
        for name, rule in rules_of(spec).items()
    ]
    if not broken:
        return rows
    none = F.when(F.lit(False), F.lit(False))
    is_good = reduce(
        lambda found, each: found.when(each[0], F.raise_error(F.lit(each[1])).cast("boolean")), broken, none
    )
    return rows.where(is_good.otherwise(F.lit(True)))


def rules_of(spec: TableSpec) -> dict[str, str]:
    """What must be true of every row, as SQL: required columns, generated ones, and the table's constraints."""
    required = {
        f"{column.name}_is_there": f"{column.name} IS NOT NULL" for column in spec.columns if column.is_required
    }
    generated = {
        f"{column.name}_is_generated": f"{column.name} <=> {column.generated_as}"
        for column in spec.columns
        if column.generated_as
    }
    return {**required, **generated, **spec.constraints}
