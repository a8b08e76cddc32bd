"""Values of a delta as the log keeps them: times in microseconds, weights in millionths.

Belongs here: each conversion, for one value and for many at once. Many are converted in one step only if the result is
surely the same as one by one; otherwise the answer is None, and the caller converts them one by one.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import numpy.typing as npt

from tidemark.arrays.columns import Mask, Numbers
from tidemark.door.decoded import RefusedError
from tidemark.model.deltas import Reason
from tidemark.model.timegrid import to_us

MILLION = Decimal(1_000_000)
FIRST_US, LAST_US = to_us(datetime.min.replace(tzinfo=UTC)), to_us(datetime.max.replace(tzinfo=UTC))
# Below a million the product is off by less than a thousandth, so a clear result here is clear in decimals.
CLEAR_WEIGHT, CLEAR_DISTANCE = 1e6, 0.49


def event_us(found: datetime | int) -> int:
    """A time in microseconds since 1970; without a time zone it is UTC."""
    moment_us = found if isinstance(found, int) else to_us(found if found.tzinfo else found.replace(tzinfo=UTC))
    if not FIRST_US <= moment_us <= LAST_US:
        raise RefusedError(
            Reason.BAD_TIMESTAMP, "event_ts is not within the years 1 to 9999 (microseconds since 1970)."
        )
    return moment_us


def moment_of(found: str | datetime) -> datetime:
    """ISO 8601 in the forms that Python reads, or a datetime of any class; digits below a microsecond are cut off.

    The only parser of times: Python cuts further digits off and other parsers round them, which would store two times
    for the same text.
    """
    if isinstance(found, str):
        try:
            return datetime.fromisoformat(found)
        except ValueError:
            return datetime.fromisoformat(found.strip().upper())  # a lower-case z is UTC, too
    if type(found) is datetime:
        return found
    # A subclass may have more precision, such as the nanoseconds of pandas.
    return datetime(*found.timetuple()[:6], found.microsecond, tzinfo=found.tzinfo, fold=found.fold)


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
    """The same for many; None if one is not clear at first sight (numbers that are not finite never are)."""
    millionths, is_clear = clear_millionths(np.array(weights, dtype=np.float64))
    return millionths if is_clear.all() else None


def clear_millionths(weights: npt.NDArray[np.float64]) -> tuple[Numbers, Mask]:
    """Weights in millionths, and which of them are clear at first sight; the others mean nothing."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = weights * 1e6
        nearest = np.rint(scaled)
        # Written so that NaN is not clear.
        is_clear = (np.abs(weights) < CLEAR_WEIGHT) & (np.abs(scaled - nearest) < CLEAR_DISTANCE)
    return np.where(is_clear, nearest, 0.0).astype(np.int64), is_clear
