"""Evaluating a suite over a DataFrame, partition by partition.

Belongs here: finding the rows that contradict a suite. Does not belong here: which expectation of Great Expectations an
entry is (`native.py`), how a result is put together (`results.py`), where the rows come from (`evidence.py`) and how
results are reported (`checks.py`).

One run over a range of partitions gives each partition its own result, with a single Spark action: every
entry is a query for wrong rows, and the union of their results is counted by partition, with some of the rows. All
expectations about single rows share one of these queries, so that the rows are read once for all of them.
"""

import importlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import pyarrow as pa

from expectations.conditions import checked_columns, row_condition
from expectations.inline import as_sql, is_small
from expectations.native import native_suite, unique_columns
from expectations.results import CheckResult, WrongRows, check_results
from expectations.suite import Expectation, Suite, SuiteError
from resources.session import frame_of
from tidemark.model.buckets import BUCKET
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import GRAINS, WHOLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Enough to see a pattern, few enough to read.
EXAMPLES = 5

_NAME = "__expectation"
_BATCH = "__batch"
_VIEW = "__view_"
_numbers = count()

# The wrong rows of a query, and the wrong rows of all conditions, from one pass over the rows.
_FOUND_BY_QUERY = """
SELECT '{name}' AS expectation, {key} AS partition, to_json(struct(*)) AS example
FROM ({query})
"""
_FOUND_BY_CONDITIONS = """
SELECT {mark} AS expectation, {key} AS partition, to_json(struct({show})) AS example
FROM {batch} LATERAL VIEW explode(array_compact(array({names}))) AS {mark}
"""

# What a query may name: rows of a table, or a few rows that are there already.
View: TypeAlias = "DataFrame | pa.Table"

# Wrong rows by the name of the expectation, then by partition.
Wrong = dict[str, dict[str, WrongRows]]


class CheckBrokenError(TidemarkError):
    """An expectation could not be evaluated, which says nothing about the data."""


def run_suite(
    suite: Suite, batch: "DataFrame", *, partitions: Sequence[str], views: Mapping[str, View] | None = None
) -> list[CheckResult]:
    """Check the rows of `partitions`, which are all that `batch` holds; the queries may name `views`."""
    with _named(batch.sparkSession, {**(views or {}), _BATCH: batch}) as said:
        wrong = _find(suite, batch.sparkSession, said)
    by_column = {rule.name for rule in suite.expectations if rule.expect or rule.unique}
    rows = _rows(suite, batch) if wrong.keys() & by_column else {}
    return check_results(native_suite(suite), partitions, wrong, rows)


def import_in_background() -> None:
    """Import Great Expectations in the background: it takes ten seconds, which a run spends waiting for Spark anyway.

    Call this after the modules that both sides need (Dagster, Spark, pandas) are imported, and only if there is
    something to check.
    """
    # Its modules import each other in a circle: with two threads, one may see a half-imported module.
    importlib.import_module("sqlalchemy.orm")
    threading.Thread(target=importlib.import_module, args=("great_expectations",), daemon=True).start()


def _key(suite: Suite) -> str:
    """SQL: the key of a row's partition."""
    if suite.is_whole:
        return f"'{WHOLE}'"
    if suite.is_by_bucket:
        return BUCKET.sql_key(suite.partition)
    return f"date_format(`{suite.partition}`, '{GRAINS[suite.grain].sql_format}')"


def _rows(suite: Suite, batch: "DataFrame") -> dict[str, int]:
    """How many rows each partition has."""
    from pyspark.sql import functions as F

    return {row[0]: row[1] for row in batch.groupBy(F.expr(_key(suite))).count().collect()}


def _find(suite: Suite, spark: "SparkSession", said: str) -> Wrong:
    """The rows that contradict the suite; `said` names what its queries name."""
    from pyspark.errors import PySparkException

    rules = suite.expectations
    try:
        return _count(suite, spark.sql(f"{said} {_findings(suite, rules)}"))
    except PySparkException:
        for rule in rules:
            try:
                spark.sql(f"{said} {_findings(suite, [rule])}").count()
            except PySparkException as error:
                raise CheckBrokenError(
                    f"Expectation {rule.name!r} could not be evaluated: the query of {rule.name!r} of {suite.table} "
                    f"cannot be run: {error}"
                ) from error
        raise


def _findings(suite: Suite, rules: Sequence[Expectation]) -> str:
    """SQL: the wrong rows of all rules: the rule's name, the partition, and the row as JSON."""
    key = _key(suite)
    found = [
        _FOUND_BY_QUERY.format(name=rule.name, key=key, query=query.replace("{batch}", _BATCH))
        for rule in rules
        if (query := _query(suite, rule))
    ]
    if conditions := {rule.name: condition for rule in rules if (condition := _condition(rule))}:
        names = ", ".join(f"if({condition}, NULL, '{name}')" for name, condition in conditions.items())
        checked = [column for rule in rules for column in checked_columns(rule.arguments)]
        show = ", ".join(f"`{column}`" for column in dict.fromkeys([*suite.show, *checked]))
        found.append(_FOUND_BY_CONDITIONS.format(mark=_NAME, key=key, show=show, batch=_BATCH, names=names))
    return " UNION ALL ".join(found)


def _condition(rule: Expectation) -> str | None:
    """The condition of a rule about single rows, if it is one: never null, and true for every correct row."""
    if rule.expect is not None:
        return row_condition(rule.expect, rule.arguments)
    return f"coalesce({rule.every_row}, false)" if rule.every_row is not None else None


def _query(suite: Suite, rule: Expectation) -> str | None:
    """The query for wrong rows of a rule that compares rows, if it is one."""
    if rule.unique is not None:
        columns = ", ".join(f"`{column}`" for column in unique_columns(suite, rule.unique))
        return f"SELECT {columns}, count(*) AS copies FROM {{batch}} GROUP BY ALL HAVING count(*) > 1"
    return rule.wrong_rows


def _count(suite: Suite, findings: "DataFrame") -> Wrong:
    """The findings counted by expectation and partition, with the first few of each."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = F.row_number().over(Window.partitionBy("expectation", "partition").orderBy("example"))
    counted = (
        findings.withColumn("place", place)
        .groupBy("expectation", "partition")
        .agg(
            F.count("*").alias("wrong"),
            F.collect_list(F.when(F.col("place") <= EXAMPLES, F.col("example"))).alias("examples"),
        )
    )
    found: Wrong = {}
    for row in counted.collect():
        if row["partition"] is None:
            raise SuiteError(
                f"Expectation {row['expectation']!r} of {suite.table} returned a row without its partition, such as "
                f"{row['examples'][0]}. Select {suite.partition} in wrong_rows, and let it never be null."
            )
        examples = tuple(msgspec.json.decode(example) for example in sorted(row["examples"]))
        found.setdefault(row["expectation"], {})[row["partition"]] = WrongRows(row["wrong"], examples)
    return found


@contextmanager
def _named(spark: "SparkSession", views: Mapping[str, View]) -> Iterator[str]:
    """The beginning of a query that may name these views.

    What is small goes with the query: a view of the session is a command of its own. Such views have names that no
    other check has: one that was interrupted may end, and drop its own, while the next is under way.
    """
    said, names = [], list[str]()
    try:
        for name, view in views.items():
            if isinstance(view, pa.Table) and is_small(view):
                said.append(f"{name} AS ({as_sql(view)})")
                continue
            names.append(f"{_VIEW}{next(_numbers)}")
            frame = frame_of(spark, view) if isinstance(view, pa.Table) else view
            frame.createOrReplaceTempView(names[-1])
            said.append(f"{name} AS (SELECT * FROM {names[-1]})")
        yield f"WITH {', '.join(said)}"
    finally:
        for name in names:
            spark.catalog.dropTempView(name)
