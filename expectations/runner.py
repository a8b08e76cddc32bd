"""Evaluating a suite over a DataFrame, partition by partition.

Belongs here: finding the rows that contradict a suite. Does not belong here: which expectation of Great Expectations an
entry is (`native.py`), how a result is put together (`results.py`), where the rows come from (`evidence.py`) and who is
told (`checks.py`).

One run over a range of partitions gives each partition its own result, in two Spark jobs if all is well. Great
Expectations evaluates what it says of single columns, all of it in one. What compares columns or rows is a query for
the rows that are wrong, and the union of what all queries find is counted, in another. Only for what does not hold are
the rows counted by partition and some of them shown.
"""

import importlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from expectations.native import native_suite, unique_columns
from expectations.results import CheckResult, WrongRows, check_results
from expectations.suite import Expectation, Suite, SuiteError
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import GRAINS, WHOLE

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.core import ExpectationValidationResult
    from pyspark.sql import DataFrame, SparkSession

# Enough to see a pattern, few enough to read.
EXAMPLES = 5

# Wrong rows that are fetched at once to be counted by partition; more than that, and the partitions are halved.
# Great Expectations cuts some kinds of results at 200.
FETCHED = 200

_KEY = "__partition"
_NAME = "__expectation"
_BATCH = "__batch"

# The wrong rows of a query, and those of all conditions, for which the rows are looked at once.
_FOUND_BY_QUERY = """
SELECT '{name}' AS expectation, {key} AS partition, to_json(struct(*)) AS example
FROM ({query})
"""
_FOUND_BY_CONDITIONS = """
SELECT {mark} AS expectation, {key} AS partition, to_json(struct({show})) AS example
FROM {batch} LATERAL VIEW explode(array_compact(array({names}))) AS {mark}
"""

# Wrong rows by the name of the expectation, then by partition.
Wrong = dict[str, dict[str, WrongRows]]


class CheckBrokenError(TidemarkError):
    """An expectation could not be evaluated, which says nothing about the data."""


def run_suite(
    suite: Suite, batch: "DataFrame", *, partitions: Sequence[str], views: Mapping[str, "DataFrame"] | None = None
) -> list[CheckResult]:
    """Judge the rows of `partitions`, which are all that `batch` holds; `views` are what the queries may name."""
    native = native_suite(suite)
    with _temporary_views({**(views or {}), _BATCH: batch}):
        wrong = _judge_columns(suite, native, batch, partitions) | _judge_queries(suite, batch.sparkSession)
        by_column = {rule.name for rule in suite.expectations if rule.expect or rule.unique}
        rows = _rows(suite, batch) if wrong.keys() & by_column else {}
    return check_results(native, partitions, wrong, rows)


def import_in_background() -> None:
    """Begin to import Great Expectations beside other work: it takes ten seconds, which a run spends waiting for Spark.

    Call it when what both sides import (Dagster, Spark, pandas) is there, and only when there is something to judge.
    """
    # Its modules import each other in a circle: two threads in it at once may find half of one.
    importlib.import_module("sqlalchemy.orm")
    threading.Thread(target=importlib.import_module, args=("great_expectations",), daemon=True).start()


def _key(suite: Suite) -> str:
    """SQL: the key of a row's partition."""
    if suite.is_whole:
        return f"'{WHOLE}'"
    return f"date_format(`{suite.partition}`, '{GRAINS[suite.grain].sql_format}')"


def _rows(suite: Suite, batch: "DataFrame") -> dict[str, int]:
    """How many rows each partition has."""
    from pyspark.sql import functions as F

    return {row[0]: row[1] for row in batch.groupBy(F.expr(_key(suite))).count().collect()}


def _judge_columns(suite: Suite, native: "ExpectationSuite", batch: "DataFrame", partitions: Sequence[str]) -> Wrong:
    """What Great Expectations says of single columns: one job if it all holds."""
    from pyspark.sql import functions as F

    own = {rule.name for rule in suite.expectations if rule.expect}
    rules = [each.configuration.to_json_dict() for each in native.expectations if each.meta["name"] in own]
    if not rules:
        return {}
    marked = batch.withColumn(_KEY, F.expr(_key(suite)))
    broken = [
        rule for rule, result in _validate(marked, rules, {"result_format": "BOOLEAN_ONLY"}) if not result.success
    ]
    return {
        rule["meta"]["name"]: {found.partition: found for found in _locate(suite, marked, rule, list(partitions))}
        for rule in broken
    }


def _locate(suite: Suite, marked: "DataFrame", rule: dict[str, Any], partitions: list[str]) -> Iterator[WrongRows]:
    """The wrong rows of one rule by partition; halves the partitions until all of a half's wrong rows are at hand."""
    from pyspark.sql import functions as F

    judged = [value for name, value in rule["kwargs"].items() if name.startswith("column")]
    index = list(dict.fromkeys([_KEY, *suite.show, *judged]))
    detail = {"result_format": "SUMMARY", "partial_unexpected_count": FETCHED, "unexpected_index_column_names": index}
    part = marked.where(F.col(_KEY).isin(partitions)) if partitions else marked
    [(_, result)] = list(_validate(part, [rule], detail))
    if result.success:
        return
    count = int(result.result["unexpected_count"])
    rows = [_readable(row, index) for row in result.result["partial_unexpected_index_list"] or []]
    if len(partitions) > 1 and count > len(rows):
        middle = len(partitions) // 2
        yield from _locate(suite, marked, rule, partitions[:middle])
        yield from _locate(suite, marked, rule, partitions[middle:])
        return
    for partition in partitions:
        here = [row for row in rows if row[_KEY] == partition]
        if here:
            examples = [{name: value for name, value in row.items() if name != _KEY} for row in here[:EXAMPLES]]
            yield WrongRows(partition, count if len(partitions) == 1 else len(here), tuple(examples))


def _readable(row: Mapping[str, Any], index: Sequence[str]) -> dict[str, Any]:
    """A wrong row as Great Expectations gives it, with plain values."""
    return {
        name: value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
        for name, value in row.items()
        if name in index
    }


def _judge_queries(suite: Suite, spark: "SparkSession") -> Wrong:
    """What is said by a query for wrong rows, whatever it compares: one job if none returns any."""
    from pyspark.errors import PySparkException

    rules = [rule for rule in suite.expectations if not rule.expect]
    if not rules:
        return {}
    try:
        findings = spark.sql(_findings(suite, rules)).persist()
        try:
            # What is counted is usually nothing; if it is something, it is at hand to be counted by partition.
            return _count(suite, findings) if findings.count() else {}
        finally:
            findings.unpersist()
    except PySparkException:
        for rule in rules:
            try:
                spark.sql(_findings(suite, [rule])).count()
            except PySparkException as error:
                raise CheckBrokenError(
                    f"The query of expectation {rule.name!r} of {suite.table} cannot be run: {error}"
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
    if conditions := [rule for rule in rules if rule.every_row]:
        names = ", ".join(f"if(coalesce({rule.every_row}, false), NULL, '{rule.name}')" for rule in conditions)
        show = ", ".join(f"`{column}`" for column in suite.show)
        found.append(_FOUND_BY_CONDITIONS.format(mark=_NAME, key=key, show=show, batch=_BATCH, names=names))
    return " UNION ALL ".join(found)


def _query(suite: Suite, rule: Expectation) -> str | None:
    """The query for wrong rows behind a rule, if it is one that compares rows."""
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
        found.setdefault(row["expectation"], {})[row["partition"]] = WrongRows(row["partition"], row["wrong"], examples)
    return found


def _validate(
    batch: "DataFrame", rules: Sequence[dict[str, Any]], result_format: dict[str, Any]
) -> "Iterator[tuple[dict[str, Any], ExpectationValidationResult]]":
    """Ask Great Expectations, in a context of its own, and give back each rule with its result."""
    import great_expectations as gx

    with _quiet():
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("batch")
        suite = gx.ExpectationSuite(name="suite", expectations=[*rules])
        whole = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": batch})
        results = whole.validate(suite, result_format=result_format).results
    by_name = {rule["meta"]["name"]: rule for rule in rules}
    for result in results:
        name = result.expectation_config.meta["name"]
        if result.exception_info and result.exception_info.get("raised_exception", True):
            raise CheckBrokenError(f"Expectation {name!r} could not be evaluated: {_cause(result.exception_info)}")
        yield by_name[name], result


def _cause(exception_info: Mapping[str, Any]) -> str:
    """The message inside an exception report, which is nested by metric or not at all."""
    inner = [value for value in exception_info.values() if isinstance(value, Mapping)]
    return str((inner[0] if inner else exception_info).get("exception_message"))


@contextmanager
def _temporary_views(views: Mapping[str, "DataFrame"]) -> Iterator[None]:
    for name, frame in views.items():
        frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name, frame in views.items():
            frame.sparkSession.catalog.dropTempView(name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Great Expectations reports its own steps at INFO; here its results are the report."""
    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
