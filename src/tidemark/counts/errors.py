"""The errors of the warm tier, each with what to do about it.

Belongs here: its error kinds. The error for an `as_of` that is not on a minute is in `windows.py`.
"""

from tidemark.model.errors import DamageError, TidemarkError
from tidemark.model.timegrid import MINUTE_US, from_us


class CountersError(TidemarkError):
    """Any error of the warm tier."""


class TooFarBackError(CountersError):
    """A count was requested as of a time that only the lake can answer for."""

    def __init__(self, as_of_us: int, oldest_us: int, newest_us: int) -> None:
        self.oldest_us, self.newest_us = oldest_us, newest_us
        super().__init__(
            f"The counters in memory answer as of {_shown(oldest_us)} to {_shown(newest_us)}, not {_shown(as_of_us)}. "
            "Ask the lake: `counts.window` with the same `as_of`, or `./tidemark counts --as-of`."
        )


class NotYetError(CountersError):
    """A count was requested as of a time that has not come."""

    def __init__(self, as_of_us: int, now_us: int) -> None:
        super().__init__(
            f"{_shown(as_of_us)} has not come: the clock says {_shown(now_us)}. "
            f"Ask as of {_shown(now_us // MINUTE_US * MINUTE_US)}, or leave `as_of` out."
        )


class FullError(CountersError):
    """There is no room for another (entity, signal), or a sum could leave 64 bits."""


class NoTextError(CountersError):
    """The names of entities are not texts."""

    def __init__(self, what: object) -> None:
        super().__init__(
            f"The names of entities are not texts ({what}). Give a list of str, or an Arrow array of strings, no nulls."
        )


class FollowsLogError(CountersError):
    """Only the log writes counters that follow it."""

    def __init__(self) -> None:
        super().__init__(
            "These counters follow the log, and must equal the tables: send a delta to the coordinator instead."
        )


class ForeignHandlesError(CountersError):
    """Handles were resolved by other counters, or before these were restored."""

    def __init__(self) -> None:
        super().__init__("These handles belong to other counters, or to these before a restore. Resolve them again.")


class BehindError(CountersError):
    """The tables cover epochs that these counters have not applied yet."""


class SnapshotDamageError(DamageError):
    """A snapshot differs from what was written, or has another version."""


def _shown(time_us: int) -> str:
    return from_us(time_us).strftime("%Y-%m-%dT%H:%M:%SZ")
