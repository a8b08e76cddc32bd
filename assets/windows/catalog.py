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
    panes = [Derived(window_table(stream), pane_needs(stream)) for stream in of_type(streams, PANES)]
    late = by_event_time(streams)
    return [*panes, *([Derived(LATE_DELTAS, late_needs(late))] if late else [])]


def late_needs(streams: Iterable[Stream]) -> tuple[Need, ...]:
    """What an hour of `late_deltas` is made of: all that any of the streams needs for it."""
    sessions = [Need(DELTAS, before_us=each.window.gap_us) for each in streams if each.window.gap_us]
    panes = [need for each in streams if not each.window.gap_us for need in pane_needs(each)]
    own = [need for need in (*sessions, *panes) if need.by is By.EVENT]
    whole = Need(DELTAS, before_us=max(n.before_us for n in own), after_us=max(n.after_us for n in own))
    stamps = {(need.before_us, need.after_us): need for need in panes if need.by is By.STAMP}
    return (whole, *stamps.values())


def by_event_time(streams: Streams) -> list[Stream]:
    """The streams for which a delta can be late."""
    return [stream for stream in streams.streams.values() if not stream.window.is_by_arrival]


def of_type(streams: Streams, types: Iterable[WindowType]) -> list[Stream]:
    """The streams with windows of these types."""
    wanted = set(types)
    return [stream for stream in streams.streams.values() if stream.window.type in wanted]


STREAMS = load_streams(find_streams(), reserved=RESERVED)
DERIVED = tuple(derived_tables(STREAMS))
