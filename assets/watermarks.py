"""Output watermarks of tables (T3), from the records that a materialization leaves.

Belongs here: handing records on to the marks of their tables. What a record says is in each stage's `records.py`, and
how far the sources have come in `ingest/log.py`. No Spark.
"""

from collections.abc import Iterable
from pathlib import Path

from resources.marks import Mark, MarkFile
from resources.record import Record


def remember_marks(directory: Path, records: Iterable[Record]) -> None:
    """Let the tables of these records have got as far as they say. Call when the records are logged."""
    by_table: dict[str, list[Mark]] = {}
    for record in records:
        found = by_table.setdefault(record.asset, [])
        found.append(Mark(record.watermark_us, record.held_by, record.recorded_us))
    for table, found in by_table.items():
        MarkFile(directory, table).advance(found)
