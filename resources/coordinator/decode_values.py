"""Values of a delta as the log keeps them: moments in microseconds, weights in millionths.

Belongs here: each conversion, for one value and for many at once. The many are done in one step only where that surely
gives the same as one by one; else there is no answer, and whoever asked goes on one by one.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np

from resources.coordinator.columns import Numbers
from resources.coordinator.decoded import RefusedError
from resources.coordinator.model import Reason
from resources.timegrid import to_us

MILLION = Decimal(1_000_000)
FIRST_US, LAST_US = to_us(datetime.min.replace(tzinfo=UTC)), to_us(datetime.max.replace(tzinfo=UTC))
# Below a million the product is off by less than a thousandth, so that what is clear here is clear in decimals.
CLEAR_WEIGHT, CLEAR_DISTANCE = 1e6, 0.49


def event_us(found: datetime | int) -> int:
    """A moment in microseconds since 1970; without a time zone it is UTC."""
    moment_us = found if isinstance(found, int) else to_us(found if found.tzinfo else found.replace(tzinfo=UTC))
    if not FIRST_US <= moment_us <= LAST_US:
        raise RefusedError(
            Reason.BAD_TIMESTAMP, "event_ts is not within the years 1 to 9999 (microseconds since 1970)."
        )
    return moment_us


def all_event_us(found: Sequence[datetime | int]) -> Numbers | None:
    """The same for many; None if one is refused."""
    try:
        if set(map(type, found)) != {int}:
            return np.array([event_us(moment) for moment in found], dtype=np.int64)
        moments = np.array(found, dtype=np.int64)
    except (RefusedError, OverflowError):
        return None
    return moments if moments.min() >= FIRST_US and moments.max() <= LAST_US else None


def millionths_of(weight: float) -> int:
    """A finite weight in millionths.

    The shortest decimal text of the number is what the producer meant; half a millionth goes to the even neighbour.
    """
    if -CLEAR_WEIGHT < weight < CLEAR_WEIGHT:
        scaled = weight * 1e6
        nearest = round(scaled)
        if abs(scaled - nearest) < CLEAR_DISTANCE:
            return nearest
    return int((Decimal(repr(weight)) * MILLION).to_integral_value(ROUND_HALF_EVEN))


def all_millionths(weights: Sequence[float]) -> Numbers | None:
    """The same for many; None if one of them is not clear at first sight (or not finite, which none of these is)."""
    found = np.array(weights, dtype=np.float64)
    scaled = found * 1e6
    nearest = np.rint(scaled)
    # Written so that what is not a number is not clear.
    is_clear = np.abs(found).max() < CLEAR_WEIGHT and np.abs(scaled - nearest).max() < CLEAR_DISTANCE
    return nearest.astype(np.int64) if is_clear else None
