"""Values of a definition besides text: a word with options, or a duration.

Belongs here: reading these from a file's values (`nodes.py`). `parse.py` and `late_policies.py` define the words.
"""

from collections.abc import Collection

from tidemark.streams.durations import EXAMPLES, NoDurationError, parse_duration
from tidemark.streams.nodes import Value


def one_of(value: Value, instead: str) -> tuple[str, Value | None]:
    """A word, or a word with options."""
    if value.is_text:
        return value.text(instead), None
    parts = value.mapping(instead)
    if len(parts) != 1:
        value.refuse(f"{value.name} says {len(parts)} things, and means one. Write {instead}.")
    given = next(parts.values())
    return given.name, given


def duration_of(given: Value, names: set[str], beside: Collection[str] = ()) -> int:
    """The one duration that a window cannot do without, written alone or under its name."""
    if given.is_text:
        return required_duration(given)
    name = min(names)
    return required_duration(given.mapping(f"a duration: {EXAMPLES}", {*names, *beside}).require(name, f"{name}: 10m"))


def required_duration(value: Value) -> int:
    """The duration that stands here."""
    found = duration(value)
    assert found is not None  # noqa: S101 - for the type checker: a value has a duration, or is refused
    return found


def duration(value: Value | None, *, is_zero_allowed: bool = False) -> int | None:
    """The duration here, if there is a value."""
    if value is None:
        return None
    try:
        return parse_duration(value.text(f"a duration: {EXAMPLES}"), is_zero_allowed=is_zero_allowed)
    except NoDurationError as error:
        value.refuse(f"{value.name}: {error}")
