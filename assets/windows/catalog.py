"""The streams of this home as tables: what is defined, which tables that makes, and what these are made from.

Belongs here: from definitions to `TableSpec` and to the graph. Definitions are read once, when this is imported, as the
partitions of time are; a definition that cannot be used keeps everything from loading, with a message that says what to
write. No Spark, no Dagster. Does not belong here: the assets (`factory.py`).
"""

from collections.abc import Iterable

from assets.graph import By, Derived, Need
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.rollups.schema import TIERS, WINDOWED_COUNTS
from assets.windows.reach import reach_us
from assets.windows.schema import LATE_DELTAS, window_table
from resources.streams import LatePolicy, Stream, Streams, WindowType, find_streams, load_streams

# What other tables and assets are called.
RESERVED = {spec.name for spec in (DELTAS, DEAD_LETTERS, *TIERS, WINDOWED_COUNTS, LATE_DELTAS)} | {"drain"}
PANES = (WindowType.TUMBLING, WindowType.SLIDING, WindowType.FIXED)


def pane_needs(stream: Stream) -> tuple[Need, ...]:
    """What an hour of a stream's panes is made of."""
    after_us = reach_us(stream)
    if stream.window.type is WindowType.FIXED:
        return (Need(DELTAS, By.RECEIPT, after_us=after_us),)
    own = Need(DELTAS, By.EVENT, after_us=after_us)
    return (own, stamp_need(stream)) if stream.late.policy is LatePolicy.NEXT_WINDOW else (own,)


def stamp_need(stream: Stream) -> Need:
    """What is late goes into the pane that is open under its stamp: one that began up to its size before that."""
    allowed_us = stream.late.allowed_us
    return Need(DELTAS, By.STAMP, before_us=-allowed_us, after_us=allowed_us + reach_us(stream))


def derived_tables(streams: Streams) -> list[Derived]:
    """Every table that the definitions make, and what it is made from."""
    panes = [each for each in streams.streams.values() if each.window.type in PANES]
    return [Derived(window_table(stream), pane_needs(stream)) for stream in panes]


def of_type(streams: Streams, types: Iterable[WindowType]) -> list[Stream]:
    """The streams with windows of these types."""
    wanted = set(types)
    return [stream for stream in streams.streams.values() if stream.window.type in wanted]


STREAMS = load_streams(find_streams(), reserved=RESERVED)
DERIVED = tuple(derived_tables(STREAMS))
