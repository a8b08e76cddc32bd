"""Running a suite over a DataFrame with Great Expectations, and what came out, partition by partition.

Belongs here: the translation of a suite into expectations of Great Expectations 1.x, and frozen results. Does not
belong here: where the rows come from (`evidence.py`) and who is told (`checks.py`).

One run over a range of partitions gives each partition its own verdict, in two Spark jobs if all is well: what is said
of single rows is judged on the rows, and what is said by queries is judged on their findings, the union of the wrong
rows that they return. Only for what does not hold are the rows counted by partition and some of them shown.
"""

import importlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from expectations.suite import Expectation, Severity, Suite, SuiteError
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import GRAINS, WHOLE

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from pyspark.sql import Column, DataFrame, SparkSession

# Enough to see a pattern, few enough to read.
EXAMPLES = 5

# Wrong rows that are fetched at once to be counted by partition; more than that, and the partitions are halved.
# Great Expectations cuts some kinds of results at 200.
FETCHED = 200

_KEY = "__partition"
_HOLDS = "__holds_"
_BATCH = "__batch"

_FINDING = """
SELECT '{name}' AS expectation, {key} AS partition, to_json(struct(*)) AS example
FROM ({query})
"""


class CheckBrokenError(TidemarkError):
    """An expectation could not be evaluated, which says nothing about the data."""


class WrongRows(Struct, frozen=True):
    """Rows of one partition that contradict one expectation."""

    partition: str
    wrong: int
    examples: tuple[str, ...]  # as JSON


@dataclass(frozen=True)
class Outcome:
    """What one expectation found, in all partitions."""

    name: str
    sentence: str
    severity: Severity
    wrong: Mapping[str, WrongRows]  # by partition; those where it holds are not in it

    @property
    def passed(self) -> bool:
        """Whether it holds in every partition."""
        return not self.wrong


@dataclass(frozen=True)
class Verdict:
    """What a whole suite says about one partition."""

    partition: str
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The expectations that do not hold here, errors first."""
        found = (outcome for outcome in self.outcomes if self.partition in outcome.wrong)
        return tuple(sorted(found, key=lambda outcome: outcome.severity is not Severity.ERROR))

    @property
    def passed(self) -> bool:
        """Whether everything that guards data holds here; a warning does not count against it."""
        return all(outcome.severity is Severity.WARNING for outcome in self.failed)

    @property
    def message(self) -> str:
        """What failed, how many rows, and one of them (O5)."""
        if not self.failed:
            return f"All {len(self.outcomes)} expectations hold."
        lines = []
        for outcome in self.failed:
            wrong = outcome.wrong[self.partition]
            rows = "1 row contradicts" if wrong.wrong == 1 else f"{wrong.wrong:,} rows contradict"
            warning = "Warning: " if outcome.severity is Severity.WARNING else ""
            lines.append(f"{warning}{rows} '{outcome.sentence}' ({outcome.name}), for example {wrong.examples[0]}")
        return "\n".join(lines)


@dataclass(frozen=True)
class SuiteResult:
    """What a suite found in a range of partitions."""

    table: str
    partitions: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether everything holds everywhere."""
        return all(outcome.passed for outcome in self.outcomes)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Each partition's own verdict, in the order in which they were asked for."""
        return tuple(Verdict(partition, self.outcomes) for partition in self.partitions)


def run_suite(
    suite: Suite, batch: "DataFrame", *, partitions: Sequence[str], views: Mapping[str, "DataFrame"] | None = None
) -> SuiteResult:
    """Judge the rows of `partitions`, which are all that `batch` holds; `views` are what the queries may name."""
    with _temporary_views(views or {}):
        wrong = _judge_rows(suite, batch, partitions) | _judge_queries(suite, batch)
    asked = set(partitions)
    outcomes = [
        Outcome(
            each.name,
            each.sentence,
            each.severity,
            {found.partition: found for found in wrong.get(each.name, []) if found.partition in asked},
        )
        for each in suite.expectations
    ]
    return SuiteResult(suite.table, tuple(partitions), tuple(outcomes))


def import_in_background() -> None:
    """Begin to import Great Expectations beside other work: it takes ten seconds, which a run spends waiting for Spark.

    Call it when what both sides import (Dagster, Spark, pandas) is there, and only when there is something to judge.
    """
    # Its modules import each other in a circle: two threads in it at once may find half of one.
    importlib.import_module("sqlalchemy.orm")
    threading.Thread(target=importlib.import_module, args=("great_expectations",), daemon=True).start()


def _judge_rows(suite: Suite, batch: "DataFrame", partitions: Sequence[str]) -> dict[str, list[WrongRows]]:
    """Everything that is said of single rows: one job if it all holds."""
    rules = [each for each in suite.expectations if not _query(suite, each)]
    if not rules:
        return {}
    marked = _mark(suite, batch, rules)
    broken = [
        rule for rule, result in _validate(marked, rules, {"result_format": "BOOLEAN_ONLY"}) if not result.success
    ]
    return {rule.name: list(_locate(suite, marked, rule, list(partitions))) for rule in broken}


def _mark(suite: Suite, batch: "DataFrame", rules: Sequence[Expectation]) -> "DataFrame":
    """The batch with its partition's key, and a column for each condition that says whether it is true."""
    from pyspark.sql import functions as F

    conditions: dict[str, Column] = {
        _HOLDS + rule.name: F.coalesce(F.expr(rule.every_row), F.lit(False)) for rule in rules if rule.every_row
    }
    return batch.withColumns({_KEY: F.expr(_key(suite)), **conditions})


def _key(suite: Suite) -> str:
    """SQL: the key of a row's partition."""
    if suite.is_whole:
        return f"'{WHOLE}'"
    return f"date_format(`{suite.partition}`, '{GRAINS[suite.grain].sql_format}')"


def _locate(suite: Suite, marked: "DataFrame", rule: Expectation, partitions: list[str]) -> Iterator[WrongRows]:
    """The wrong rows of one rule by partition; halves the partitions until all of a half's wrong rows are at hand."""
    from pyspark.sql import functions as F

    judged = [value for name, value in rule.arguments.items() if name.startswith("column")]
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
            examples = [
                msgspec.json.encode({k: v for k, v in row.items() if k != _KEY}).decode() for row in here[:EXAMPLES]
            ]
            yield WrongRows(partition, count if len(partitions) == 1 else len(here), tuple(examples))


def _readable(row: Mapping[str, Any], index: Sequence[str]) -> dict[str, Any]:
    """A wrong row as Great Expectations gives it, with plain values."""
    return {
        name: value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
        for name, value in row.items()
        if name in index
    }


def _judge_queries(suite: Suite, batch: "DataFrame") -> dict[str, list[WrongRows]]:
    """Everything that is said by a query for wrong rows: one job if none returns any."""
    rules = [each for each in suite.expectations if _query(suite, each)]
    if not rules:
        return {}
    with _temporary_views({_BATCH: batch}):
        findings = _findings(suite, batch.sparkSession, rules)
        # Great Expectations looks twice, first for the number of rows; what it looks at is usually empty.
        findings.persist()
        try:
            results = _validate(findings, rules, {"result_format": "BOOLEAN_ONLY"})
            broken = [rule.name for rule, result in results if not result.success]
            return _count(suite, findings, broken) if broken else {}
        finally:
            findings.unpersist()


def _query(suite: Suite, rule: Expectation) -> str | None:
    """The query for wrong rows behind a rule, if it is one that compares rows."""
    if rule.unique is not None:
        within = [] if suite.is_whole else [suite.partition]
        columns = ", ".join(f"`{column}`" for column in dict.fromkeys([*within, *rule.unique]))
        return f"SELECT {columns}, count(*) AS copies FROM {{batch}} GROUP BY ALL HAVING count(*) > 1"
    return rule.wrong_rows


def _findings(suite: Suite, spark: "SparkSession", rules: Sequence[Expectation]) -> "DataFrame":
    """The wrong rows of all queries: the rule's name, the partition, and the row as JSON."""
    from pyspark.errors import PySparkException

    try:
        return spark.sql(" UNION ALL ".join(_finding(suite, rule) for rule in rules))
    except PySparkException:
        for rule in rules:
            try:
                spark.sql(_finding(suite, rule))
            except PySparkException as error:
                raise CheckBrokenError(
                    f"The query of expectation {rule.name!r} of {suite.table} cannot be run: {error}"
                ) from error
        raise


def _finding(suite: Suite, rule: Expectation) -> str:
    query = (_query(suite, rule) or "").replace("{batch}", _BATCH)
    return _FINDING.format(name=rule.name, key=_key(suite), query=query)


def _count(suite: Suite, findings: "DataFrame", broken: Sequence[str]) -> dict[str, list[WrongRows]]:
    """The findings of the rules that do not hold, counted by partition, with the first few of each."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = F.row_number().over(Window.partitionBy("expectation", "partition").orderBy("example"))
    counted = (
        findings.where(F.col("expectation").isin(list(broken)))
        .withColumn("place", place)
        .groupBy("expectation", "partition")
        .agg(
            F.count("*").alias("wrong"),
            F.collect_list(F.when(F.col("place") <= EXAMPLES, F.col("example"))).alias("examples"),
        )
    )
    found: dict[str, list[WrongRows]] = {name: [] for name in broken}
    for row in counted.collect():
        if row["partition"] is None:
            raise SuiteError(
                f"Expectation {row['expectation']!r} of {suite.table} returned a row without its partition, such as "
                f"{row['examples'][0]}. Select {suite.partition} in wrong_rows, and let it never be null."
            )
        found[row["expectation"]].append(WrongRows(row["partition"], row["wrong"], tuple(sorted(row["examples"]))))
    return found


def _validate(
    batch: "DataFrame", rules: Sequence[Expectation], result_format: dict[str, Any]
) -> Iterator[tuple[Expectation, "ExpectationValidationResult"]]:
    """Ask Great Expectations, in a context of its own, and give back each rule with its result."""
    import great_expectations as gx

    if not rules:
        return
    with _quiet():
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("batch")
        suite_of_rules = gx.ExpectationSuite(name="suite", expectations=[_configured(rule) for rule in rules])
        whole = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": batch})
        results = whole.validate(suite_of_rules, result_format=result_format).results
    by_name = {rule.name: rule for rule in rules}
    for result in results:
        name = result.expectation_config.meta["name"]
        if result.exception_info and result.exception_info.get("raised_exception", True):
            raise CheckBrokenError(f"Expectation {name!r} could not be evaluated: {_cause(result.exception_info)}")
        yield by_name[name], result


def _configured(rule: Expectation) -> dict[str, Any]:
    """The rule as Great Expectations writes it: on the rows, or on the findings of all queries."""
    meta = {"name": rule.name}
    if rule.expect is not None:
        return {"type": rule.expect, "kwargs": dict(rule.arguments), "meta": meta}
    if rule.every_row is not None:
        kwargs = {"column": _HOLDS + rule.name, "value_set": [True]}
        return {"type": "expect_column_values_to_be_in_set", "kwargs": kwargs, "meta": meta}
    kwargs = {"column": "expectation", "value_set": [rule.name]}
    return {"type": "expect_column_values_to_not_be_in_set", "kwargs": kwargs, "meta": meta}


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
