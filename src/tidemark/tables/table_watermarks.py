"""How far each table has come in event time (T3), stored beside its generation and read without an orchestrator.

Belongs here: the output watermark of a table as a small file, and how those of its inputs are combined. The watermark
recorded with each partition is in `resources/record.py`; a table has come as far as any of its materializations ever
recorded, because a watermark is a promise about events, and no later run takes it back.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from tidemark.storage.json_files import read_json, write_json

WATERMARK_FILE = "watermark.json"


class TableWatermark(Struct, frozen=True):
    """The output watermark of one table."""

    watermark_us: int | None = None  # None while nothing was promised
    held_by: str | None = None  # the input that kept it low when it was recorded
    recorded_us: int | None = None  # when the table was last materialized


class TableWatermarkFile:
    """The watermark file of one table."""

    def __init__(self, directory: Path, table: str) -> None:
        self._path = directory / table / WATERMARK_FILE

    def read(self) -> TableWatermark | None:
        """The stored watermark; None if the table was never materialized."""
        return read_json(self._path, TableWatermark, way_out="Delete it: the next materialization writes it again.")

    def advance(self, recorded: Iterable[TableWatermark]) -> None:
        """Store the watermarks of a materialization: the table's rises to the furthest of them, and never falls."""
        before = self.read() or TableWatermark()
        found = list(recorded)
        furthest = max([*found, before], key=lambda each: (each.watermark_us is not None, each.watermark_us or 0))
        times = [each.recorded_us for each in (before, *found) if each.recorded_us is not None]
        write_json(self._path, TableWatermark(furthest.watermark_us, furthest.held_by, max(times, default=None)))

    def fall_to(self, at_us: int) -> None:
        """The clock was wrong and was reset (C15): cut everything recorded to this time."""
        before = self.read()
        if before is not None:
            times = (before.watermark_us, before.recorded_us)
            watermark_us, recorded_us = (None if time is None else min(time, at_us) for time in times)
            write_json(self._path, TableWatermark(watermark_us, before.held_by, recorded_us))


def tables_with_watermarks(directory: Path) -> list[str]:
    """Tables that have a watermark."""
    return sorted(path.parent.name for path in directory.glob(f"*/{WATERMARK_FILE}"))


def read_table_watermarks(directory: Path, tables: Iterable[str]) -> dict[str, TableWatermark]:
    """The watermarks of those tables that have one."""
    found = {table: TableWatermarkFile(directory, table).read() for table in tables}
    return {table: watermark for table, watermark in found.items() if watermark is not None}


def least_watermark(inputs: Mapping[str, int | None], idle: Collection[str] = ()) -> tuple[int | None, str | None]:
    """The minimum over the inputs, and the input that has it (T3).

    Idle inputs do not count, unless there are no others; an input that has promised nothing yet keeps all at None.
    """
    counted = {name: time_us for name, time_us in inputs.items() if name not in idle} or dict(inputs)
    silent = sorted(name for name, time_us in counted.items() if time_us is None)
    if silent or not counted:
        return None, silent[0] if silent else None
    lowest = min(counted, key=lambda name: (counted[name] or 0, name))
    return counted[lowest], lowest
