"""Durations as people write them: a number and a unit, such as 10m.

Belongs here: reading and showing one. All of them are whole microseconds.
"""

import re

from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US

UNITS_US = {"ms": 1_000, "s": SECOND_US, "m": MINUTE_US, "h": HOUR_US, "d": DAY_US}
EXAMPLES = "30s, 10m, 1h or 7d"
# A year: rollups are for longer windows, and no sum of durations can overflow.
LONGEST_US = 366 * DAY_US


class NoDurationError(ValueError):
    """A value is not a duration, or not a usable one; the message says what to write."""


def parse_duration(text: str, *, is_zero_allowed: bool = False) -> int:
    """Microseconds."""
    found = re.fullmatch(r"([+-]?\d{1,18})\s*(ms|s|m|h|d)?", text.strip())
    if not found or (found.group(2) is None and int(found.group(1)) != 0):
        raise NoDurationError(f"{text!r} is no duration. Write a number and a unit: {EXAMPLES}.")
    time_us = int(found.group(1)) * UNITS_US[found.group(2) or "s"]
    if time_us < 0:
        raise NoDurationError(f"{text} is below zero. Write how long it is: {EXAMPLES}.")
    if time_us == 0 and not is_zero_allowed:
        raise NoDurationError(f"{text} is no time at all. Write how long it is: {EXAMPLES}.")
    if time_us > LONGEST_US:
        raise NoDurationError(f"{text} is more than a year, which is the longest. Write 366d or less.")
    return time_us


def show_duration(time_us: int) -> str:
    """As people write it: in the largest unit of which it is a whole number."""
    for unit, length_us in reversed(UNITS_US.items()):
        if time_us and time_us % length_us == 0:
            return f"{time_us // length_us}{unit}"
    return "0s" if time_us == 0 else f"{time_us}us"
