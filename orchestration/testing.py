"""Testing an asset in five lines: a tiny platform, deltas given as a table, one materialization, expected rows.

Belongs here: helpers for testing an asset on the real stack (a real log, real Spark, real Delta, every check). The
platform itself does not use them.

    def test_hours_are_sums_of_minutes(tmp_path):
        platform = TinyPlatform(tmp_path)
        platform.given('''
            | event_ts             | signal.entity_id | signal.signal | signal.count |
            | 2026-03-02T10:05:00Z | item-1           | view          | 2            |
            | 2026-03-02T10:59:59Z | item-1           | view          | 3            |
        ''')
        platform.materialize("hourly_counts")
        platform.expect("hourly_counts", '''
            | entity_id | bucket_start         | count |
            | item-1    | 2026-03-02T10:00:00Z | 5     |
        ''')
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assets.tables import GRAPH
from orchestration.materialize import drain, materialize_hours
from orchestration.runs import RunResults
from tidemark import Platform
from tidemark.model.deltas import PAYLOADS
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import HOUR_US, hour_key, to_us
from tidemark.storage.home import Home
from tidemark.tables import lake_files

SETTINGS = '[spark]\nmaster = "local[2]"\n'
DEFAULTS = {"namespace": "shop"}


class TableTextError(TidemarkError):
    """A table written as text cannot be read."""


def read_table(text: str) -> list[dict[str, Any]]:
    """Rows of a table like the ones above: names in the first line, then one line per row; empty cells are left out.

    A cell is JSON if it can be read as such (numbers, lists, "quoted text"), and plain text otherwise.
    """
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines or not all(line.startswith("|") and line.endswith("|") for line in lines):
        raise TableTextError("A table has lines that begin and end with '|'; the first one has the names.")
    names, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise TableTextError(f"Row {number} has {len(row)} cells, but there are {len(names)} names: {row}")
    return [{name: _value(cell) for name, cell in zip(names, row, strict=True) if cell} for row in rows]


def as_deltas(text: str, *, first_number: int = 1) -> list[dict[str, Any]]:
    """Deltas as a producer sends them. A name with a dot is a field of the payload, and says the kind."""
    deltas = []
    for number, row in enumerate(read_table(text), start=first_number):
        delta: dict[str, Any] = {**DEFAULTS, "delta_id": f"d{number}"}
        for name, value in row.items():
            payload, _, member = name.partition(".")
            if member:
                delta.setdefault(payload, {})[member] = value
            else:
                delta[name] = value
        kind = next((kind for kind in PAYLOADS if kind in delta), None)
        deltas.append({**({"kind": kind} if kind else {}), **delta})
    return deltas


class TinyPlatform:
    """A platform in an empty home, whose clock stands an hour after the latest event."""

    def __init__(self, directory: Path, settings: str = SETTINGS) -> None:
        self.home = Home(directory / "home").create(settings)
        self._sent = 0
        self._now_us = 0

    def given(self, text: str) -> None:
        """Send the deltas of a table, as one write, and seal it."""
        deltas = as_deltas(text, first_number=self._sent + 1)
        self._sent += len(deltas)
        times = [
            datetime.fromisoformat(str(delta["event_ts"])).astimezone(UTC) for delta in deltas if "event_ts" in delta
        ]
        self._now_us = max([self._now_us, *(to_us(time) + HOUR_US for time in times)])
        with Platform.open(self.home, clock=lambda: self._now_us) as platform:
            platform.producer("test").write(deltas)

    def materialize(self, asset: str) -> RunResults:
        """Drain the given deltas, then compute the asset and its inputs for the hours that have deltas."""
        outcome = drain(self.home)
        chain = [asset] if asset in GRAPH else []
        while chain and (before := [table for table in GRAPH[chain[0]].inputs if table in GRAPH]):
            chain.insert(0, before[0])
        if chain:
            hours = [hour_key(start) for start in lake_files.partitions(self.home.lake / "deltas")]
            outcome += materialize_hours(self.home, chain, hours)
        if not outcome.succeeded:
            problems = [run.error for run in outcome.runs if run.error]
            raise AssertionError("\n".join([*problems, *(check.message for check in outcome.failed_checks)]))
        return outcome

    def expect(self, table: str, text: str) -> None:
        """Assert that the table has exactly these rows in the named columns; their order does not matter."""
        wanted = read_table(text)
        names = [cell.strip() for cell in text.strip().splitlines()[0].strip()[1:-1].split("|")]
        found = sorted(self.rows(table, names), key=repr)
        expected = sorted((tuple(row.get(name) for name in names) for row in wanted), key=repr)
        if found != expected:
            raise AssertionError(f"{table} has {_lines(names, found)}\n\nexpected were {_lines(names, expected)}")

    def rows(self, table: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """Columns of every row, read without Spark; times as text, as they are written in a table."""
        found = lake_files.open_table(self.home.lake / table)
        if found is None:
            raise AssertionError(f"There is no table {table}; materialize it first.")
        rows = found.to_pyarrow_table(columns=list(names)).to_pylist()
        return [tuple(_shown(row[name]) for name in names) for row in rows]


def _value(cell: str) -> Any:
    try:
        return json.loads(cell)
    except json.JSONDecodeError:
        return cell


def _shown(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def _lines(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (tuple(names), *rows)]
    return f"{len(rows)} row(s):\n" + "\n".join(lines)
