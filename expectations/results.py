"""Check results in the form of Great Expectations: one `ExpectationSuiteValidationResult` for each partition.

Belongs here: putting such a result together from the wrong rows of a partition, and reading one: whether the partition
may be built upon, and the message of its check (O5). Does not belong here: finding wrong rows (`runner.py`), reporting
to the orchestrator (`checks.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from expectations.native import SEVERITIES
from expectations.suite import Severity

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

CRITICAL, WARNING = SEVERITIES[Severity.ERROR], SEVERITIES[Severity.WARNING]
NOTHING_RAISED = {"raised_exception": False, "exception_traceback": None, "exception_message": None}


@dataclass(frozen=True)
class WrongRows:
    """Rows of one partition that contradict one expectation; a set of rows that should be unique counts as one."""

    count: int
    examples: tuple[Mapping[str, Any], ...]  # the columns by which a person finds the row, and the checked ones


@dataclass(frozen=True)
class CheckResult:
    """The check result of one partition."""

    partition: str
    validation: "ExpectationSuiteValidationResult"

    @property
    def failed(self) -> "tuple[ExpectationValidationResult, ...]":
        """The failed expectations; first those that stop the tables downstream."""
        found = (result for result in self.validation.results if not result.success)
        return tuple(sorted(found, key=lambda result: severity_of(result) != CRITICAL))

    @property
    def passed(self) -> bool:
        """Whether no expectation failed, apart from warnings."""
        return all(severity_of(result) != CRITICAL for result in self.failed)

    @property
    def message(self) -> str:
        """What failed, how many rows, and one of them (O5)."""
        if not self.failed:
            return f"All {len(self.validation.results)} expectations hold."
        lines = []
        for result in self.failed:
            count = count_of(result)
            rows = "1 row contradicts" if count == 1 else f"{count:,} rows contradict"
            warning = "Warning: " if severity_of(result) == WARNING else ""
            example = msgspec.json.encode(examples_of(result)[0]).decode()
            lines.append(f"{warning}{rows} '{sentence_of(result)}' ({name_of(result)}), for example {example}")
        return "\n".join(lines)


def check_results(
    suite: "ExpectationSuite",
    partitions: Sequence[str],
    wrong: Mapping[str, Mapping[str, WrongRows]],
    rows: Mapping[str, int],
) -> list[CheckResult]:
    """Each partition's result, in the requested order.

    `wrong` has the wrong rows, by expectation and partition, and `rows` the number of a partition's rows, if counted.
    """
    configurations = [expectation.configuration for expectation in suite.expectations]
    return [
        CheckResult(
            partition,
            _suite_result(
                suite,
                partition,
                [
                    _result(each, wrong.get(each.meta["name"], {}).get(partition), rows.get(partition, 0))
                    for each in configurations
                ],
            ),
        )
        for partition in partitions
    ]


def name_of(result: "ExpectationValidationResult") -> str:
    """The name that the suite file gives to the expectation."""
    return str(_configuration(result).meta["name"])


def sentence_of(result: "ExpectationValidationResult") -> str:
    """What must be true."""
    return str(_configuration(result).description)


def severity_of(result: "ExpectationValidationResult") -> str:
    """What follows if it is not true."""
    return str(getattr(_configuration(result).severity, "value", _configuration(result).severity))


def count_of(result: "ExpectationValidationResult") -> int:
    """How many rows contradict it."""
    return int(result.result.get("unexpected_count", 0))


def examples_of(result: "ExpectationValidationResult") -> list[dict[str, Any]]:
    """Some of these rows."""
    found: list[dict[str, Any]] = result.result.get("partial_unexpected_index_list", [])
    return found


def _configuration(result: "ExpectationValidationResult") -> "ExpectationConfiguration":
    if result.expectation_config is None:
        raise ValueError("A result of Great Expectations does not say which expectation it is about.")
    return result.expectation_config


def _result(
    configuration: "ExpectationConfiguration", wrong: WrongRows | None, rows: int
) -> "ExpectationValidationResult":
    """One expectation's result in one partition, with the fields that its type has in Great Expectations."""
    from great_expectations.core import ExpectationValidationResult

    found: dict[str, Any] = {}
    if wrong is not None:
        examples = [dict(example) for example in wrong.examples]
        column = configuration.kwargs.get("column")
        found = {
            "unexpected_count": wrong.count,
            "partial_unexpected_list": [row.get(column) for row in examples] if column else examples,
            "partial_unexpected_index_list": examples,
        }
        if "unexpected_rows_query" in configuration.kwargs:
            found |= {"observed_value": wrong.count, "details": {"unexpected_rows": examples}}
        else:
            found |= {"element_count": rows, "unexpected_percent": 100.0 * wrong.count / max(rows, wrong.count)}
    return ExpectationValidationResult(
        success=wrong is None, expectation_config=configuration, result=found, exception_info={**NOTHING_RAISED}
    )


def _suite_result(
    suite: "ExpectationSuite", partition: str, results: "list[ExpectationValidationResult]"
) -> "ExpectationSuiteValidationResult":
    import great_expectations as gx
    from great_expectations.core import ExpectationSuiteValidationResult

    held = sum(bool(result.success) for result in results)
    now = datetime.now(UTC)
    return ExpectationSuiteValidationResult(
        success=held == len(results),
        results=results,
        suite_name=suite.name,
        statistics={
            "evaluated_expectations": len(results),
            "successful_expectations": held,
            "unsuccessful_expectations": len(results) - held,
            "success_percent": 100.0 * held / len(results) if results else None,
        },
        meta={
            "great_expectations_version": gx.__version__,
            "active_batch_definition": {
                "datasource_name": "lake",
                "data_connector_name": "spark",
                "data_asset_name": suite.name,
                "batch_identifiers": {"partition": partition},
            },
            "run_id": {"run_name": partition, "run_time": now.isoformat()},
            "validation_time": now.isoformat(),
        },
    )
