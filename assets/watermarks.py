"""Output watermarks of assets (T3): what a table may promise, given what its inputs have promised.

Belongs here: the three ways to an output watermark, each with what holds it back: from the log, from one table, from
several. All are of the moment at which a plan was committed, so that a rebuild says the same. No Spark.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from assets.ingest.log import Log, least
from resources.marks import Mark, MarkFile, least_of
from resources.plans import Plan
from resources.record import Record, not_below

Promise = tuple[int | None, str | None]


def remember_marks(directory: Path, records: Iterable[Record]) -> None:
    """Let the tables of these records have got as far as they say. Call when the records are logged."""
    by_table: dict[str, list[Mark]] = {}
    for record in records:
        found = by_table.setdefault(record.asset, [])
        found.append(Mark(record.watermark_us, record.held_by, record.recorded_us))
    for table, found in by_table.items():
        MarkFile(directory, table).advance(found)


def source_watermark(log: Log, plan: Plan | None, source: str, previous: Record | None) -> Promise:
    """Of a table that is a view of one source: as far as that source had come in the committed log, idle or not."""
    mark = log.sources(plan.upto if plan else {}).get(source)
    return not_below(mark.time_us if mark else None, mark.held_by if mark else None, previous)


def log_watermark(log: Log, plan: Plan | None, previous: Record | None) -> Promise:
    """Of a table that holds everything: the least of all sources that are not idle."""
    found = least(log.sources(plan.upto if plan else {}).values())
    return not_below(found.time_us, found.held_by, previous)


def joined_watermark(
    log: Log,
    plan: Plan | None,
    inputs: Mapping[str, Mark | None],
    source_of: Mapping[str, str],
    previous: Record | None,
) -> Promise:
    """Of a table made from several: the least of them; those whose source is idle do not count.

    `source_of` names the source behind each input. What holds it back is named with the input that hands it on.
    """
    marks = log.sources(plan.upto if plan else {})
    idle = {name for name, source in source_of.items() if source in marks and marks[source].is_idle}
    time_us, holder = least_of({name: mark.watermark_us if mark else None for name, mark in inputs.items()}, idle)
    mark = inputs.get(holder) if holder else None
    held_by = f"{holder}, {mark.held_by}" if mark and mark.held_by else holder
    return not_below(time_us, held_by, previous)
