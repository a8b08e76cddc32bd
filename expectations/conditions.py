"""Which rows an expectation of Great Expectations about single rows accepts, as a condition in SQL.

Belongs here: the types that a suite file may name, and the meaning of each. They mean the same as in Great
Expectations, also for a missing value; `tests/transform/test_native_suites.py` compares both for each type.
"""

from collections.abc import Callable, Mapping
from typing import Any

Arguments = Mapping[str, Any]


def literal(value: str | float | bool) -> str:
    """A value as SQL text."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _is_in_set(arguments: Arguments) -> str:
    return f"`{arguments['column']}` IN ({', '.join(map(literal, arguments['value_set']))})"


def _is_between(value: str, arguments: Arguments) -> str:
    least, most = arguments.get("min_value"), arguments.get("max_value")
    above, below = ">" if arguments.get("strict_min") else ">=", "<" if arguments.get("strict_max") else "<="
    ends = [f"{value} {above} {literal(least)}"] if least is not None else []
    ends += [f"{value} {below} {literal(most)}"] if most is not None else []
    return " AND ".join(ends)


def _is_greater(arguments: Arguments) -> str:
    return f"`{arguments['column_A']}` {'>=' if arguments.get('or_equal') else '>'} `{arguments['column_B']}`"


BETWEEN = ("min_value", "max_value", "strict_min", "strict_max")

# The arguments of each type, and its condition. If a value is missing, the answer is unknown and counts as true.
ROW_EXPECTATIONS: dict[str, tuple[tuple[str, ...], Callable[[Arguments], str]]] = {
    "expect_column_pair_values_a_to_be_greater_than_b": (("column_A", "column_B", "or_equal"), _is_greater),
    "expect_column_pair_values_to_be_equal": (
        ("column_A", "column_B"),
        lambda given: f"`{given['column_A']}` <=> `{given['column_B']}`",
    ),
    "expect_column_value_lengths_to_be_between": (
        ("column", *BETWEEN),
        lambda given: _is_between(f"length(`{given['column']}`)", given),
    ),
    "expect_column_values_to_be_between": (
        ("column", *BETWEEN),
        lambda given: _is_between(f"`{given['column']}`", given),
    ),
    "expect_column_values_to_be_in_set": (("column", "value_set"), _is_in_set),
    "expect_column_values_to_be_null": (("column",), lambda given: f"`{given['column']}` IS NULL"),
    "expect_column_values_to_match_regex": (
        ("column", "regex"),
        lambda given: f"`{given['column']}` RLIKE {literal(given['regex'])}",
    ),
    "expect_column_values_to_not_be_in_set": (("column", "value_set"), lambda given: f"NOT {_is_in_set(given)}"),
    "expect_column_values_to_not_be_null": (("column",), lambda given: f"`{given['column']}` IS NOT NULL"),
    "expect_column_values_to_not_match_regex": (
        ("column", "regex"),
        lambda given: f"NOT `{given['column']}` RLIKE {literal(given['regex'])}",
    ),
}


def row_condition(kind: str, arguments: Arguments) -> str:
    """SQL that is true for every row that an expectation accepts."""
    return f"coalesce({ROW_EXPECTATIONS[kind][1](arguments)}, true)"


def checked_columns(arguments: Arguments) -> list[str]:
    """The columns that an expectation is about."""
    return [value for name, value in arguments.items() if name.startswith("column")]
