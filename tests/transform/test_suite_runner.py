"""A suite over a DataFrame: each partition's own result from one run, with the rows that are wrong (O4, O5)."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from expectations.results import count_of, examples_of
from expectations.runner import CheckBrokenError, run_suite
from expectations.suite import Expectation, Severity, Suite, SuiteError
from tests.support.spark import without_server
from tests.support.suites import failures
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
TEN, ELEVEN, NOON = "2026-03-02-10:00", "2026-03-02-11:00", "2026-03-02-12:00"
HOURS = {key: datetime(2026, 3, 2, hour, tzinfo=UTC) for key, hour in ((TEN, 10), (ELEVEN, 11), (NOON, 12))}


def things(spark: "SparkSession", *rows: tuple[str, int, str | None]) -> "DataFrame":
    return spark.createDataFrame(
        [(HOURS[key], number, colour) for key, number, colour in rows], "hour timestamp, id int, colour string"
    )


def suite(*expectations: Expectation) -> Suite:
    return Suite(
        table="things", about="Things.", partition="hour", grain="hour", show=["id"], expectations=list(expectations)
    )


def rule(name: str, sentence: str, severity: Severity = Severity.ERROR, **how: Any) -> Expectation:
    return Expectation(name=name, sentence=sentence, severity=severity, **how)


KNOWN = rule(
    "colour_is_known",
    "Every thing is red or blue.",
    expect="expect_column_values_to_be_in_set",
    arguments={"column": "colour", "value_set": ["red", "blue"]},
)
POSITIVE = rule("ids_are_positive", "Ids are positive.", every_row="id > 0")
UNIQUE = rule("ids_are_unique", "No id twice.", unique=["id"])
ABSENT = rule(
    "nothing_is_banned",
    "No thing is banned.",
    Severity.WARNING,
    wrong_rows="SELECT hour, id FROM {batch} JOIN banned USING (id)",
)


def test_each_partition_gets_its_own_result_from_one_run(spark: "SparkSession") -> None:
    batch = things(
        spark,
        (TEN, 1, "red"),
        (TEN, 2, "blue"),
        (ELEVEN, 3, "green"),
        (ELEVEN, -4, "red"),
        (NOON, 5, "red"),
        (NOON, 5, "red"),
    )
    banned = spark.createDataFrame([(2,)], "id int")

    found = run_suite(
        suite(KNOWN, POSITIVE, UNIQUE, ABSENT), batch, partitions=[TEN, ELEVEN, NOON], views={"banned": banned}
    )

    ten, eleven, noon = found
    assert failures(eleven) == ["colour_is_known", "ids_are_positive"]
    assert failures(noon) == ["ids_are_unique"]
    assert failures(ten) == ["nothing_is_banned"]
    assert ten.passed, "a warning stops nothing"
    assert not eleven.passed
    assert not noon.passed
    assert "1 row contradicts 'Every thing is red or blue.' (colour_is_known), for example" in eleven.message
    assert '"id":3' in eleven.message
    assert '"copies":2' in noon.message


def test_a_partition_without_rows_contradicts_nothing(spark: "SparkSession") -> None:
    [result] = run_suite(suite(KNOWN, POSITIVE, UNIQUE), things(spark), partitions=[TEN])
    assert result.passed
    assert result.message == "All 3 expectations hold."


def test_an_unknown_answer_is_no_consent(spark: "SparkSession") -> None:
    condition = rule("is_red", "All is red.", every_row="colour = 'red'")
    [result] = run_suite(suite(condition), things(spark, (TEN, 1, None)), partitions=[TEN])
    assert not result.passed


def test_more_wrong_rows_than_are_fetched_are_counted_exactly(spark: "SparkSession") -> None:
    """O5: how many rows, not how many were shown."""
    rows = [(key, -number, "red") for key, wrong in ((TEN, 300), (ELEVEN, 7)) for number in range(1, wrong + 1)]
    batch = things(spark, *rows, (NOON, 1, "red"))

    found = run_suite(suite(POSITIVE, UNIQUE), batch, partitions=[TEN, ELEVEN, NOON])

    wrong = {result.partition: result.validation.results[0] for result in found if result.failed}
    assert {partition: count_of(each) for partition, each in wrong.items()} == {TEN: 300, ELEVEN: 7}
    assert [len(examples_of(each)) for each in wrong.values()] == [5, 5]


def test_a_query_that_cannot_be_run_is_named(spark: "SparkSession") -> None:
    broken = rule("broken", "It is.", wrong_rows="SELECT size FROM {batch}")
    with pytest.raises(CheckBrokenError, match="'broken' of things"):
        run_suite(suite(UNIQUE, broken), things(spark, (TEN, 1, "red")), partitions=[TEN])


def test_an_expectation_that_cannot_be_evaluated_is_named(spark: "SparkSession") -> None:
    broken = rule("broken", "It is.", expect="expect_column_values_to_not_be_null", arguments={"column": "size"})
    with pytest.raises(CheckBrokenError, match="'broken' could not be evaluated"):
        run_suite(suite(broken), things(spark, (TEN, 1, "red")), partitions=[TEN])


def test_a_wrong_row_without_its_partition_is_a_mistake_in_the_suite(spark: "SparkSession") -> None:
    lost = rule("lost", "It is.", wrong_rows="SELECT CAST(NULL AS timestamp) AS hour, id FROM {batch}")
    with pytest.raises(SuiteError, match="without its partition"):
        run_suite(suite(lost), things(spark, (TEN, 1, "red")), partitions=[TEN])


def test_after_an_interrupted_check_the_next_one_is_right(tmp_path: Path) -> None:
    """What interrupts a run leaves no answer of the JVM to whatever asks next."""
    home = Home(tmp_path / "home").create()
    command = [sys.executable, "-m", "tests.support.interrupted_checks", str(home.root)]
    environment = without_server(os.environ)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.splitlines() == ["True False"] * 3, done.stderr
