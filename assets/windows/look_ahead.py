"""How far panes reach beyond the hour in which they begin.

Belongs here: arithmetic that the graph and the transformations share. No Spark.
"""

from tidemark.model.timegrid import HOUR_US
from tidemark.streams import Stream


def look_ahead_us(stream: Stream) -> int:
    """How far the panes that begin in an hour reach beyond its end."""
    step_us, size_us = stream.window.step_us, stream.window.size_us
    if HOUR_US % step_us:
        return size_us - 1
    # Every hour has its panes at the same places: the last one begins a step before its end, or that much later.
    return size_us - step_us + stream.window.offset_us % step_us
