"""Errors in the time of an event (D9, K4), found for a whole batch of columns at once.

Belongs here: the bounds of event time at arrival, in the order in which they are reported. Does not belong here:
lateness for a window, which is no error.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tidemark.arrays.columns import NO_ROWS, Numbers, Rows, missing, numbers_of
from tidemark.door.decoded import Finding
from tidemark.model.deltas import Kind, Reason
from tidemark.model.settings import Settings
from tidemark.model.timegrid import from_us


def find_times(
    columns: Mapping[str, pa.Array], received_us: Numbers, settings: Settings, cut_us: int | None
) -> list[Finding]:
    """Bounded on both sides, so that one wrong clock makes no honest row late; vectors only from their cut on."""
    event_ts = columns["event_ts"]
    event_us = numbers_of(event_ts)
    skew_us = settings.clock_skew_ms * 1_000
    earliest_us = settings.earliest_event_us
    is_future = event_us.max() > received_us.min() + skew_us  # or may be: the rows' own times of arrival decide
    findings = [
        Finding(missing(event_ts), Reason.BAD_TIMESTAMP, "event_ts is missing."),
        Finding(
            _before(event_us, earliest_us),
            Reason.TOO_OLD,
            f"The event is older than {_shown(earliest_us)}, the earliest kept here.",
        ),
        Finding(
            (event_us > received_us + skew_us).nonzero()[0] if is_future else NO_ROWS,
            Reason.FROM_THE_FUTURE,
            f"The event is more than {settings.clock_skew_ms / 1_000:g} s ahead of the clock here.",
        ),
    ]
    if cut_us is not None and len(old := _before(event_us, cut_us)):
        is_vector = np.asarray(columns[Kind.VECTOR].is_valid())
        detail = f"The vector's history before {_shown(cut_us)} was compacted; a change to it can no longer be taken."
        findings.insert(2, Finding(old[is_vector[old]], Reason.BELOW_HORIZON, detail))
    return findings


def _before(event_us: Numbers, bound_us: int) -> Rows:
    return (event_us < bound_us).nonzero()[0] if event_us.min() < bound_us else NO_ROWS


@lru_cache
def _shown(moment_us: int) -> str:
    return f"{from_us(moment_us):%Y-%m-%dT%H:%M:%SZ}"
