"""A suite is one of Great Expectations, and so is what came out of it: it can be evaluated, stored and shown there."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from assets.tables import TABLES
from expectations.conditions import ROW_EXPECTATIONS
from expectations.native import SEVERITIES, expectation_suite, native_suite
from expectations.results import CheckResult, count_of, name_of
from expectations.runner import run_suite
from expectations.suite import Expectation, Severity, Suite
from expectations.templates import suite_of
from tests.support.suites import failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEN, ELEVEN = "2026-03-02-10:00", "2026-03-02-11:00"
ROWS = [("red", 1, 7), ("blue", 2, 8)]
WRONG = [("green", 3, 7), ("red", -4, 8), ("red", 5, None), ("red", 6, 6), ("blue", 6, 6), ("blue", 2, 1)]


def entry(name: str, severity: Severity = Severity.ERROR, **rule: Any) -> Expectation:
    return Expectation(name=name, sentence=f"It holds that {name}.", severity=severity, **rule)


THINGS = Suite(
    table="things",
    about="Things.",
    partition="hour",
    grain="hour",
    show=["id"],
    expectations=[
        entry(
            "colour_is_known",
            expect="expect_column_values_to_be_in_set",
            arguments={"column": "colour", "value_set": ["red", "blue"]},
        ),
        entry(
            "id_is_positive", expect="expect_column_values_to_be_between", arguments={"column": "id", "min_value": 1}
        ),
        entry("id_is_below_size", every_row="id < size"),
        entry("size_is_small", Severity.WARNING, every_row="size < 100"),
        entry("ids_are_unique", unique=["id"]),
        entry("nothing_is_banned", Severity.WARNING, wrong_rows="SELECT hour, id FROM {batch} JOIN banned USING (id)"),
    ],
)


def batch_of(spark: "SparkSession", good: list[Any], wrong: list[Any] | None = None) -> "DataFrame":
    hours = {10: good, 11: wrong or []}
    rows = [(datetime(2026, 3, 2, hour, tzinfo=UTC), *row) for hour, some in hours.items() for row in some]
    return spark.createDataFrame(rows, "hour timestamp, colour string, id int, size int")


def judge(spark: "SparkSession", wrong: list[Any] | None = None) -> list[CheckResult]:
    banned = spark.createDataFrame([(5,)], "id int")
    return run_suite(THINGS, batch_of(spark, ROWS, wrong), partitions=[TEN, ELEVEN], views={"banned": banned})


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_suite_of_great_expectations(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    """O4: with the names, sentences and severities of its file, and nothing said on the way."""
    suite, native = suite_of(table), expectation_suite(table)
    assert native.name == table
    assert [each.meta["name"] for each in native.expectations] == [each.name for each in suite.expectations]
    assert [each.description for each in native.expectations] == [each.sentence for each in suite.expectations]
    severities = [each.configuration.to_json_dict()["severity"] for each in native.expectations]
    assert severities == [SEVERITIES[each.severity] for each in suite.expectations]
    assert json.dumps(native.to_json_dict())
    assert capsys.readouterr().out == ""


def test_each_entry_is_an_expectation_that_great_expectations_has() -> None:
    known = {each.meta["name"]: each.configuration for each in native_suite(THINGS).expectations}
    assert known["colour_is_known"].kwargs == {"column": "colour", "value_set": ["red", "blue"]}
    assert [known[each.name].type for each in THINGS.expectations] == [
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_be_between",
        "unexpected_rows_expectation",
        "unexpected_rows_expectation",
        "expect_compound_columns_to_be_unique",
        "unexpected_rows_expectation",
    ]
    assert known["ids_are_unique"].kwargs["column_list"] == ["hour", "id"]
    query = known["id_is_below_size"].kwargs["unexpected_rows_query"]
    assert query == "SELECT * FROM {batch} WHERE NOT coalesce(id < size, false)"


def test_results_are_those_of_great_expectations(spark: "SparkSession") -> None:
    from great_expectations.core import ExpectationSuiteValidationResult

    good, wrong = (result.validation for result in judge(spark, WRONG))
    assert isinstance(good, ExpectationSuiteValidationResult)
    assert good.success
    assert good.statistics["successful_expectations"] == len(THINGS.expectations)
    assert not wrong.success
    assert wrong.get_max_severity_failure().value == "critical"
    found = {each.expectation_config.meta["name"]: each.result for each in wrong.results if not each.success}
    assert found["colour_is_known"]["unexpected_count"] == 1
    assert found["colour_is_known"]["partial_unexpected_list"] == ["green"]
    assert found["colour_is_known"]["element_count"] == len(WRONG)
    assert found["id_is_below_size"]["observed_value"] == 4
    assert found["id_is_below_size"]["partial_unexpected_list"] == [
        {"id": 2, "colour": "blue"},
        {"id": 5, "colour": "red"},
        {"id": 6, "colour": "blue"},
        {"id": 6, "colour": "red"},
    ]
    assert found["nothing_is_banned"]["details"]["unexpected_rows"][0]["id"] == 5
    assert json.loads(json.dumps(wrong.to_json_dict()))["statistics"]["unsuccessful_expectations"] == len(found)


def test_a_result_can_be_shown_by_the_data_docs_of_great_expectations(
    spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaPageView

    for result in judge(spark, WRONG):
        page = DefaultJinjaPageView().render(ValidationResultsPageRenderer().render(result.validation))
        assert "It holds that colour_is_known." in page
    assert "exception occurred" not in caplog.text


def test_great_expectations_by_itself_finds_the_same(spark: "SparkSession") -> None:
    """The union of findings is a quicker way to what the suite means, and not another meaning."""
    import great_expectations as gx

    for wrong in ([], WRONG, [("red", 9, 500)], [(None, 9, 10)]):
        spark.createDataFrame([(5,)], "id int").createOrReplaceTempView("banned")
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("things")
        definition = asset.add_batch_definition_whole_dataframe("whole")
        batch = definition.get_batch({"dataframe": batch_of(spark, ROWS, wrong)})
        alone = batch.validate(native_suite(THINGS), result_format="SUMMARY")
        assert not any(each.exception_info and each.exception_info.get("raised_exception") for each in alone.results)
        failed = {each.expectation_config.meta["name"] for each in alone.results if not each.success}
        assert failed == {name for result in judge(spark, wrong) for name in failures(result)}


RULES: list[tuple[str, dict[str, Any]]] = [
    ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "id", "column_B": "size"}),
    ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "id", "column_B": "size", "or_equal": True}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "id", "column_B": "size"}),
    ("expect_column_value_lengths_to_be_between", {"column": "colour", "min_value": 4, "max_value": 5}),
    ("expect_column_values_to_be_between", {"column": "id", "min_value": 1, "max_value": 3}),
    ("expect_column_values_to_be_between", {"column": "id", "min_value": 1, "strict_min": True}),
    ("expect_column_values_to_be_between", {"column": "id", "max_value": 2, "strict_max": True}),
    ("expect_column_values_to_be_in_set", {"column": "colour", "value_set": ["red", "o'er\\"]}),
    ("expect_column_values_to_be_null", {"column": "size"}),
    ("expect_column_values_to_match_regex", {"column": "colour", "regex": "^re\\w$"}),
    ("expect_column_values_to_not_be_in_set", {"column": "colour", "value_set": ["red", "blue"]}),
    ("expect_column_values_to_not_be_null", {"column": "size"}),
    ("expect_column_values_to_not_match_regex", {"column": "colour", "regex": "^re"}),
]


def test_every_type_of_great_expectations_means_the_same_here(spark: "SparkSession") -> None:
    """How many rows each finds wrong, missing values among them."""
    import great_expectations as gx

    assert {kind for kind, _ in RULES} == ROW_EXPECTATIONS.keys()
    rows: list[Any] = [
        ("red", 1, 1),
        ("o'er\\", 2, 1),
        (None, 3, 4),
        ("blue", None, 2),
        ("re", 4, None),
        (None, None, None),
    ]
    suite = Suite(
        "types",
        "Types.",
        "hour",
        "hour",
        ["id"],
        [entry(f"rule_{number}", expect=kind, arguments=given) for number, (kind, given) in enumerate(RULES)],
    )
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("types")
    batch = batch_of(spark, rows)
    whole = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": batch})
    alone = whole.validate(native_suite(suite), result_format="SUMMARY").results
    [ours] = run_suite(suite, batch, partitions=[TEN])
    expected = {name_of(each): each.result["unexpected_count"] for each in alone}
    assert {name_of(each): count_of(each) for each in ours.validation.results} == expected
    assert all(expected.values()), "each of them finds something"


def test_spark_is_asked_once_if_all_holds_however_many_expectations_there_are(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, asked = batch_of(spark, ROWS), list[str]()

    def watch(name: str) -> None:
        own = getattr(type(batch), name)

        def act(frame: "DataFrame", *arguments: Any) -> Any:
            asked.append(name)
            return own(frame, *arguments)

        monkeypatch.setattr(type(batch), name, act)

    for name in ("count", "collect", "toPandas", "toArrow", "foreach", "tail", "isEmpty"):
        watch(name)
    many = [entry(f"again_{number}", every_row=f"id > -{number}") for number in range(10)]
    many += [entry(f"unique_{number}", unique=["id", "size"]) for number in range(3)]
    many += [
        entry(f"known_{n}", expect="expect_column_values_to_not_be_null", arguments={"column": "id"}) for n in range(3)
    ]
    [result] = run_suite(Suite("many", "Many.", "hour", "hour", ["id"], many), batch, partitions=[TEN])
    assert result.message == "All 16 expectations hold."
    assert asked == ["collect"]
