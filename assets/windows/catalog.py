"""The streams of this home as tables: the definitions, the tables that they make, and the inputs of these.

Belongs here: from definitions to `TableSpec` and to the graph, and how far back in time that reaches. Definitions are
read once, when this is imported, like the partitions of time; an invalid definition keeps everything from loading, with
a message that says what to write. No Spark, no Dagster. Does not belong here: the assets (`factory.py`).
"""

import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

from assets.graph import By, Derived, Need
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.joins.schema import join_table
from assets.rollups.schema import TIERS, WINDOWED_COUNTS
from assets.vectors.index_schema import PARTS, VECTOR_INDEX
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTOR_CONFLICTS, VECTORS
from assets.windows.look_ahead import look_ahead_us
from assets.windows.open_schema import open_table
from assets.windows.schema import LATE_DELTAS, window_table
from tidemark.model.settings import Settings
from tidemark.model.timegrid import HOUR, HOUR_US
from tidemark.streams import Join, JoinForm, Stream, Streams, WindowType, find_streams, load_streams

# Names that other tables and assets have already.
_OF_VECTORS = (VECTORS, VECTOR_CHECKPOINTS, VECTOR_CONFLICTS, VECTOR_INDEX, *PARTS)
RESERVED = {spec.name for spec in (DELTAS, DEAD_LETTERS, *TIERS, WINDOWED_COUNTS, LATE_DELTAS, *_OF_VECTORS)} | {
    "drain"
}
PANES = (WindowType.TUMBLING, WindowType.SLIDING, WindowType.FIXED)
# Fields of a definition that change no row: its purpose, and how the watermark moves that deltas are stamped with.
NOT_OF_ROWS = {"description", "disorder_us", "idle_us"}


def pane_needs(stream: Stream) -> tuple[Need, ...]:
    """The inputs of an hour of a stream's panes."""
    after_us = look_ahead_us(stream)
    if stream.window.type is WindowType.FIXED:
        return (Need(DELTAS, By.RECEIPT, after_us=after_us, source=stream.source),)
    own = Need(DELTAS, By.EVENT, after_us=after_us, source=stream.source)
    return (own, stamp_need(stream)) if stream.late.is_moved else (own,)


def stamp_need(stream: Stream) -> Need:
    """A late delta goes into the pane that is open under its stamp: one that began up to its size before that."""
    allowed_us = stream.late.allowed_us
    after_us = allowed_us + look_ahead_us(stream)
    return Need(DELTAS, By.STAMP, before_us=-allowed_us, after_us=after_us, source=stream.source)


def derived_tables(streams: Streams) -> list[Derived]:
    """Every table that the definitions make, with its inputs."""
    panes = [
        Derived(window_table(stream), pane_needs(stream), definition_of(stream)) for stream in of_type(streams, PANES)
    ]
    sessions = [each for stream in of_type(streams, [WindowType.SESSION]) for each in session_tables(stream)]
    batches = of_type(streams, [WindowType.ADAPTIVE])
    adaptive = [Derived(window_table(stream), (Need(DELTAS, By.BATCH),), definition_of(stream)) for stream in batches]
    joins = [join_tables(join, streams) for join in streams.joins.values()]
    late = by_event_time(streams)
    lates = [Derived(LATE_DELTAS, late_needs(late), definition_of(*late))] if late else []
    return [*panes, *sessions, *adaptive, *joins, *lates]


def session_tables(stream: Stream) -> list[Derived]:
    """Open sessions, made from those of the hour before; closed ones, from the sessions open at that hour's end."""
    still_open, own = open_table(stream), Need(DELTAS, source=stream.source)
    carried = Need(still_open, By.CARRY, before_us=HOUR_US, after_us=-HOUR_US)
    return [Derived(spec, (own, carried), definition_of(stream)) for spec in (still_open, window_table(stream))]


def join_tables(join: Join, streams: Streams) -> Derived:
    """The inputs of an hour of pairs: the deltas that either side may have in its panes, or sessions."""
    left, right = streams.streams[join.left], streams.streams[join.right]
    spec, definition = join_table(join, left, right), definition_of(join, left, right)
    if join.form is JoinForm.SESSIONS:
        tables = window_table(left), window_table(right)
        meetings = [Need(one, By.MEETING, partner=other) for one, other in (tables, tables[::-1])]
        return Derived(spec, tuple(meetings), definition)
    # For a right side with sliding windows, the deltas are matched in the panes of the left side.
    slid = (Need(DELTAS, after_us=look_ahead_us(left), source=right.source),)
    rights = pane_needs(right) if join.form is JoinForm.SAME_PANE else slid
    own = pane_needs(left)
    return Derived(spec, (*own, *(need for need in rights if need not in own)), definition)


def late_needs(streams: Iterable[Stream]) -> tuple[Need, ...]:
    """The inputs of an hour of `late_deltas`: all that any of the streams needs for it, by namespace and kind."""
    sessions = [
        Need(DELTAS, before_us=each.window.gap_us, source=each.source) for each in streams if each.window.gap_us
    ]
    panes = [need for each in streams if not each.window.gap_us for need in pane_needs(each)]
    whole: dict[str | None, Need] = {}
    for need in (*sessions, *(need for need in panes if need.by is By.EVENT)):
        found = whole.get(need.source, need)
        before_us, after_us = max(need.before_us, found.before_us), max(need.after_us, found.after_us)
        whole[need.source] = Need(DELTAS, before_us=before_us, after_us=after_us, source=need.source)
    stamps = {(need.before_us, need.after_us, need.source): need for need in panes if need.by is By.STAMP}
    return (*whole.values(), *stamps.values())


def definition_of(*meant: Stream | Join) -> str:
    """A short hash of what definitions say about a table's rows; it changes when their meaning changes."""
    said = [
        {name: value for name, value in msgspec.to_builtins(each).items() if name not in NOT_OF_ROWS} for each in meant
    ]
    return hashlib.sha256(msgspec.json.encode([_given(each) for each in said], order="sorted")).hexdigest()[:16]


def _given(said: dict[str, Any]) -> dict[str, Any]:
    """Only the fields that are given: a field that a later version adds changes no hash of a definition without it."""
    return {name: _given(value) if isinstance(value, dict) else value for name, value in said.items() if value}


def earliest_us(settings: Settings, streams: Streams | None = None, first_us: int | None = None) -> int:
    """The earliest hour that the graph calls for: before the first event by as much as any table reaches back from it.

    By default the first event is the earliest that the platform takes.

    A watermark is behind the events by their disorder, and the platform's clock may be behind that of a producer.
    """
    known = STREAMS if streams is None else streams
    first_us = settings.earliest_event_us if first_us is None else first_us
    disorders_us = [stream.disorder_us or 0 for stream in known.streams.values()]
    disorder_us, skew_us = max([settings.disorder_ms * 1_000, *disorders_us]), settings.clock_skew_ms * 1_000
    behind_us = {By.STAMP: disorder_us, By.RECEIPT: skew_us, By.BATCH: skew_us}
    tables = DERIVED if streams is None else derived_tables(streams)
    needs = [need for derived in tables for need in derived.needs]
    # In whole hours, because the log records deltas by the hour.
    reached = [HOUR.floor(first_us - behind_us.get(need.by, 0)) - need.after_us for need in needs]
    return HOUR.floor(min([first_us, *reached]))


def by_event_time(streams: Streams) -> list[Stream]:
    """The streams for which a delta can be late."""
    return [stream for stream in streams.streams.values() if not stream.window.is_by_arrival]


def with_same_windows(streams: Iterable[Stream]) -> list[list[Stream]]:
    """Streams that differ in nothing but what they are views of, together: one pass over the rows does for them all."""
    alike: dict[Hashable, list[Stream]] = {}
    for stream in streams:
        alike.setdefault((stream.window, stream.late), []).append(stream)
    return list(alike.values())


def of_type(streams: Streams, types: Iterable[WindowType]) -> list[Stream]:
    """The streams with windows of these types."""
    wanted = set(types)
    return [stream for stream in streams.streams.values() if stream.window.type in wanted]


STREAMS = load_streams(find_streams(), reserved=RESERVED)
DERIVED = tuple(derived_tables(STREAMS))
