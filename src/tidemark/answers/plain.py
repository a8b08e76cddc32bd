"""Answers as JSON has them.

Belongs here: what is common to all answers.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import to_us


class ParameterError(TidemarkError):
    """A question that cannot be asked like this."""


def without_infinity(answer: object) -> object:
    """JSON has no number for infinity nor for NaN: they are the texts "Infinity", "-Infinity" and "NaN".

    `float()` and JavaScript's `Number()` read these back.
    """
    if isinstance(answer, float) and not math.isfinite(answer):
        return "NaN" if math.isnan(answer) else "Infinity" if answer > 0 else "-Infinity"
    if isinstance(answer, Mapping):
        return {key: without_infinity(value) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [without_infinity(each) for each in answer]
    return answer


def parse_time(text: str) -> int:
    """A time in microseconds; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
        # The first and the last year have times that are in no year of UTC.
        return to_us((found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC))
    except (ValueError, OverflowError) as error:
        raise ParameterError(
            f"{text!r} is not a time; write 2026-03-02T14:05 or 2026-03-02T14:05:00Z (UTC)."
        ) from error
