"""Traffic for `bench counters`: the same for every side, by seed.

Belongs here: which entity is counted when. Most events are of the last minutes, some are late by up to a week; a few
entities have most of them, as in all traffic by people.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US

SIGNALS = ("view", "like", "share")
# Monday, 2 March 2026, 10:37 UTC, and a second of that minute.
AS_OF_US = 1_772_447_820_000_000
NOW_US = AS_OF_US + 1_000_000
WEEK_HOURS, ACTIVE_HOURS = 168, 20
SEED = 7


class Batch(NamedTuple):
    """Events of one signal; each counts once."""

    signal: str
    entities: list[str]
    times_us: npt.NDArray[np.int64]


def names(entities: int) -> list[str]:
    """The names of entities."""
    return [f"item-{number:07d}" for number in range(entities)]


def batches(events: int, entities: int, size: int) -> Iterator[Batch]:
    """Live traffic: every text is a new object, as if it came from a network."""
    random = np.random.default_rng(SEED)
    for number in range(events // size):
        who = (random.random(size) ** 4 * entities).astype(np.int64).tolist()
        ages = random.integers(-50 * 1_000_000, 3 * MINUTE_US, size)
        is_late = random.random(size) < 0.02
        ages[is_late] = random.integers(0, 8 * DAY_US, int(is_late.sum()))
        yield Batch(SIGNALS[number % 3], [f"item-{each:07d}" for each in who], NOW_US - ages)


def asked(entities: int, count: int = 2_000) -> list[str]:
    """Entities whose counts are requested at once: by the same skew, each once."""
    random = np.random.default_rng(SEED + 1)
    found = dict.fromkeys((random.random(20 * count) ** 4 * entities).astype(np.int64).tolist())
    return [f"item-{each:07d}" for each in list(found)[:count]]


def active_in(hour: int, entities: int) -> npt.NDArray[np.int64]:
    """Entities that are active in an hour of the last week: each is in exactly 20 of the 168, spread over the week."""
    return np.flatnonzero((np.arange(entities) * 37 + hour * 5) % WEEK_HOURS < ACTIVE_HOURS)


def hour_times(hour: int, active: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The time of their activity: any of the hour's minutes."""
    return AS_OF_US - (hour + 1) * HOUR_US + active % 60 * MINUTE_US
