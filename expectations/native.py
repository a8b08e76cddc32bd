"""A table's suite as Great Expectations knows it: an `ExpectationSuite` of its own expectations.

Belongs here: which expectation of Great Expectations an entry of a suite file is. Does not belong here: reading suite
files (`suite.py`), evaluating a suite (`runner.py`), its results (`results.py`).

Great Expectations can evaluate such a suite by itself, given a batch of the table and the views that its queries name.
But it takes a Spark job or more for most expectations, and for a range of partitions it only says that something in it
is wrong. So `runner.py` looks for the wrong rows of all expectations together.
"""

import io
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from expectations.suite import Expectation, Severity, Suite
from expectations.templates import suite_of

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation as NativeExpectation

# What a failure means to Great Expectations; only the first stops the tables downstream.
SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "warning"}


def expectation_suite(table: str) -> "ExpectationSuite":
    """What must be true of a table, ready to be evaluated, listed or documented with Great Expectations."""
    return native_suite(suite_of(table))


def native_suite(suite: Suite) -> "ExpectationSuite":
    """A suite file as a suite of Great Expectations: each entry is one expectation, with its sentence and severity."""
    import great_expectations as gx

    about = {"partition": suite.partition, "grain": suite.grain, "reads": {**suite.reads}}
    return gx.ExpectationSuite(name=suite.table, expectations=native_expectations(suite), notes=suite.about, meta=about)


def native_expectations(suite: Suite) -> "list[NativeExpectation]":
    """The expectations of a suite file, in its order; the name of an entry is in its `meta`."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    # It prints a warning about queries without {batch}. Ours may compare only records, and look at no rows at all.
    with redirect_stdout(io.StringIO()):
        return [
            ExpectationConfiguration(
                type=kind,
                kwargs=kwargs,
                meta={"name": rule.name},
                description=rule.sentence,
                severity=SEVERITIES[rule.severity],
            ).to_domain_obj()
            for rule, (kind, kwargs) in ((rule, native_rule(suite, rule)) for rule in suite.expectations)
        ]


def native_rule(suite: Suite, rule: Expectation) -> tuple[str, dict[str, Any]]:
    """The type and the arguments of an entry in Great Expectations."""
    if rule.expect is not None:
        return rule.expect, dict(rule.arguments)
    if rule.unique is not None:
        columns = unique_columns(suite, rule.unique)
        if len(columns) == 1:
            return "expect_column_values_to_be_unique", {"column": columns[0]}
        return "expect_compound_columns_to_be_unique", {"column_list": columns, "ignore_row_if": "never"}
    query = rule.wrong_rows or f"SELECT * FROM {{batch}} WHERE NOT coalesce({rule.every_row}, false)"
    return "unexpected_rows_expectation", {"unexpected_rows_query": query}


def unique_columns(suite: Suite, columns: Iterable[str]) -> list[str]:
    """The columns that are unique in a table if the given ones are unique in each partition."""
    within = [] if suite.is_whole else [suite.partition]
    return list(dict.fromkeys([*within, *columns]))
