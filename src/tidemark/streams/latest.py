"""The latest windows of a stream, read from its table without a JVM, and whether each is final (T6).

Belongs here: the query and its answer. Whether a window is open is never stored: it follows from the table's watermark
at the time of reading. Does not belong here: how it is displayed (`tidemark/cli/windows.py`).
"""

import difflib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import duckdb
from msgspec import Struct

from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import to_us
from tidemark.storage.home import Home
from tidemark.streams.fields import STATISTICS
from tidemark.streams.load import find_streams, load_streams
from tidemark.streams.model import Stream, Streams
from tidemark.streams.windows import WindowType
from tidemark.tables import lake_files
from tidemark.tables.table_checksums import quoted
from tidemark.tables.table_watermarks import TableWatermark, TableWatermarkFile


class WindowsError(TidemarkError):
    """The query cannot be answered."""


class UnknownStreamError(WindowsError):
    """No stream of that name is defined, or it has no table yet."""


class WindowState(StrEnum):
    """Whether more deltas are expected."""

    OPEN = "open"  # a new delta may still belong to it, and is not late
    CLOSED = "closed"  # no more deltas are expected
    REOPENED = "reopened"  # closed, and emitted again since, because of a late delta


class LatestWindow(Struct, frozen=True):
    """One window with its statistics, as the table has it."""

    state: WindowState
    key: dict[str, Any]
    statistics: dict[str, Any]
    aggregates: dict[str, Any]


class LatestWindows(Struct, frozen=True):
    """The latest windows of one stream, newest first."""

    stream: Stream
    version: int
    watermark_us: int | None  # of the table
    windows: list[LatestWindow]


def latest_windows(
    home: Home,
    name: str,
    *,
    last: int = 5,
    key: Mapping[str, str] | None = None,
    streams: Streams | None = None,
) -> LatestWindows:
    """The `last` windows of a stream that begin latest, of one key or of all keys.

    `key` has values of key fields; the empty name stands for the only field of a key with one field.
    """
    known = load_streams(find_streams(home)) if streams is None else streams
    stream = _find(known, name)
    columns = _key_columns(stream, key or {})
    # The watermark first: it is written after its commit, so it is never ahead of the rows.
    watermark = TableWatermarkFile(home.plans, name).read() or TableWatermark()
    state = lake_files.table_state(home.lake / name)
    if state is None:
        raise UnknownStreamError(f"{name} is defined, and its table does not exist yet. Drain first: ./tidemark drain.")
    rows = _read(home, stream, state.version, last, columns)
    windows = [_window(stream, row, watermark.watermark_us) for row in rows]
    return LatestWindows(stream, state.version, watermark.watermark_us, windows)


def state_of(stream: Stream, end_us: int, late: int, watermark_us: int | None) -> WindowState:
    """Whether a window is final, by how far event time has come.

    A window is closed once every further delta would be late for it (T4). An event right after a session's end still
    extends it, and is itself late only a gap later, so a session stays open for that long. Batches and windows by
    receipt are recorded when they are over.
    """
    if not stream.window.is_by_arrival:
        passed_us = end_us + stream.late.allowed_us
        if stream.window.type is WindowType.SESSION:
            passed_us += stream.window.gap_us + 1
        if watermark_us is None or passed_us > watermark_us:
            return WindowState.OPEN
    is_again = late > 0 and stream.late.is_admitted
    return WindowState.REOPENED if is_again else WindowState.CLOSED


def _find(streams: Streams, name: str) -> Stream:
    if name in streams.streams:
        return streams.streams[name]
    names = ", ".join(streams.streams) or "none: put a file into streams/"
    if name in streams.joins:
        raise WindowsError(f"{name} is a join and has pairs, no windows: read its table. Defined streams: {names}.")
    close = difflib.get_close_matches(name, streams.streams, 1)
    advice = f" Do you mean {close[0]}?" if close else ""
    raise UnknownStreamError(f"There is no stream {name!r}.{advice} Defined streams: {names}.")


def _key_columns(stream: Stream, key: Mapping[str, str]) -> dict[str, str]:
    """Column → requested value."""
    fields = {field.name: field.column for field in stream.key_fields}
    found: dict[str, str] = {}
    for name, value in key.items():
        if not name and len(fields) == 1:
            found[next(iter(fields.values()))] = value
        elif name in fields:
            found[fields[name]] = value
        else:
            known = ", ".join(fields) or "nothing: it has one window for all keys"
            problem = f"no {name!r}" if name else "more than one field"
            if not fields:
                problem = "no fields"
            raise WindowsError(
                f"The key of {stream.name} has {problem}; it is made of {known}. Write it as FIELD=VALUE."
            )
    return found


def _read(home: Home, stream: Stream, version: int, last: int, key: Mapping[str, str]) -> list[dict[str, Any]]:
    """Enough rows, from the newest partition back. Values are passed as parameters, never as text."""
    aggregates = [column for aggregate in stream.aggregates for column in aggregate.columns]
    columns = [*(field.column for field in stream.key_fields), *STATISTICS, *aggregates]
    conditions = "".join(f" AND CAST({quoted(column)} AS VARCHAR) = ?" for column in key)
    by = ", ".join(quoted(field.column) for field in stream.key_fields) or "window_id"
    order = f"window_start DESC, window_end DESC, {by}"
    if stream.window.type is WindowType.SESSION:
        order = f"window_end DESC, window_start DESC, {by}"
    found: list[dict[str, Any]] = []
    partitions = lake_files.partitions(home.lake / stream.name, version)
    with lake_files.quiet_database() as database:
        for start in reversed(partitions):
            if len(found) >= last:
                break
            query = (
                f"SELECT {', '.join(map(quoted, columns))} FROM read_parquet(?, hive_partitioning = false) "
                f"WHERE true{conditions} ORDER BY {order} LIMIT {int(last) - len(found)}"
            )
            files = list(partitions[start].files)
            try:
                rows = database.execute(query, [files, *key.values()]).fetchall()
            except duckdb.BinderException as error:
                raise WindowsError(
                    f"The table {stream.name} was made under another definition ({error}). "
                    f"Delete the table's folder, or backfill it: ./tidemark backfill {stream.name} --again."
                ) from error
            found += [dict(zip(columns, row, strict=True)) for row in rows]
    return found


def _window(stream: Stream, row: dict[str, Any], watermark_us: int | None) -> LatestWindow:
    end_us = to_us(row["window_end"])
    key = {field.name: row[field.column] for field in stream.key_fields}
    aggregates = {column: row[column] for aggregate in stream.aggregates for column in aggregate.columns}
    statistics = {name: row[name] for name in STATISTICS}
    return LatestWindow(state_of(stream, end_us, row["late"], watermark_us), key, statistics, aggregates)
