"""Output watermarks of tables (T3), from the records that a materialization leaves.

Belongs here: how far a table had come when it was materialized. What a record says about one partition is in each
stage's `records.py`, and how far the sources have come in `tidemark/observe/sealed_log.py`. No Spark.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from resources.record import Record
from tidemark.tables.table_watermarks import TableWatermark, TableWatermarkFile, least_watermark, read_table_watermarks


def input_watermarks(directory: Path, tables: Iterable[str]) -> dict[str, int | None]:
    """How far the inputs of a table have come. Call before reading their versions, so no watermark is ahead of rows."""
    names = list(tables)
    found = read_table_watermarks(directory, names)
    return {name: found[name].watermark_us if name in found else None for name in names}


def record_watermarks(
    directory: Path, records: Iterable[Record], inputs: Mapping[str, int | None] | None = None
) -> None:
    """Let the tables of these records rise to the least of their inputs; none ever falls (T3). Call when all is logged.

    A table that is made from the log has recorded itself how far its sources have come. A table that is made from other
    tables takes the least of their table watermarks: partitions without new rows do not hold it back.
    """
    by_table: dict[str, list[TableWatermark]] = {}
    for record in records:
        held = (record.watermark_us, record.held_by) if inputs is None else least_watermark(inputs)
        by_table.setdefault(record.asset, []).append(TableWatermark(*held, record.recorded_us))
    for table, found in by_table.items():
        TableWatermarkFile(directory, table).advance(found)
