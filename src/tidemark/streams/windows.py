"""How a stream is cut into windows: the types, and one stream's window with its durations in microseconds (N1).

Belongs here: enums and frozen structs without behaviour. How they are read from a file is in `parse.py`.
"""

from enum import StrEnum
from math import gcd

from msgspec import Struct


class WindowType(StrEnum):
    """How a stream is cut into windows (N1)."""

    TUMBLING = "tumbling"  # panes of one size, side by side, by event time
    SLIDING = "sliding"  # panes of one size, a step apart, by event time
    SESSION = "session"  # events of a key that are at most a gap apart
    FIXED = "fixed"  # tumbling by the time of receipt
    ADAPTIVE = "adaptive"  # the live batches of the coordinator, recorded


# Windows on the clock of the platform: nothing is ever late for them.
BY_ARRIVAL = (WindowType.FIXED, WindowType.ADAPTIVE)


class WindowSpec(Struct, frozen=True):
    """A window's type and its durations; durations that the type does not have are 0."""

    type: WindowType
    size_us: int = 0
    step_us: int = 0  # of a tumbling or fixed window: its size
    gap_us: int = 0
    offset_us: int = 0  # how long after 1970 the grid of panes begins; less than a step

    @property
    def slice_us(self) -> int:
        """The width of the slices that are summed to panes, on the grid of the panes (N6)."""
        return gcd(self.size_us, self.step_us)

    @property
    def is_by_arrival(self) -> bool:
        """Whether windows follow the clock of the platform, and not the time of events."""
        return self.type in BY_ARRIVAL
