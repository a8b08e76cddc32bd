"""The rebuild: hours of `deltas` or `dead_letters` again, from the segments of committed plans (decision 0052).

Belongs here: which segments a set of hours needs, and replacing those hours. A rebuild moves no marker, so it changes
nothing for a drain before or after it. It gives the same rows as the drain did, except for payloads that were removed
since: those do not come back (K5). Also here, because it is a rebuild: the replacing commit that opens a new
generation (C7).
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assets.ingest.duplicates import find_duplicates
from assets.ingest.prefilter import Segment, prefilter
from assets.ingest.removal import bases_of, without_payloads
from assets.ingest.schema import DEAD_LETTERS, DELTAS, LOG_DDL
from assets.ingest.transform import accepted_deltas
from resources.lake import Lake, TableSpec
from tidemark.log.manifest import Entry
from tidemark.model.ranges import Range, partition_predicate
from tidemark.observe.sealed_log import Log, touched_hours
from tidemark.storage.home import Home
from tidemark.storage.quarantine import set_aside
from tidemark.tables import lake_files
from tidemark.tables.known_table import Break, KnownTable, Opening, app_id, find_break, next_floor
from tidemark.tables.plans import PlanStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Hours = Range | Sequence[int] | None

# The names of directories for suspects begin with this.
SCRATCH = "scratch-"


def rebuild(lake: Lake, spec: TableSpec, hours: Range | Sequence[int]) -> int:
    """Replace the hours of a range, or the given hours, by what the committed plans say.

    Returns the number of the last plan whose rows are in it.
    """
    with lake.lock(DELTAS.name), lake.lock(DEAD_LETTERS.name):
        remove_scratch(lake.home)
        settle_ingest(lake)
        number = committed_number(lake, spec)
        _replace(lake, spec, hours, number)
        return number


def settle_ingest(lake: Lake) -> dict[str, str]:
    """Make sure that both tables exist and are ours: one that was deleted, restored or put back is rebuilt.

    The rebuild opens a new generation.

    Returns what was noticed, by table. Hold both locks when you call this.
    """
    noticed: dict[str, str] = {}
    for spec in (DELTAS, DEAD_LETTERS):
        known = lake.known(spec.name)
        if broken := find_break(lake.path(spec.name), known):
            noticed[spec.name] = broken.why
            _begin_generation(lake, spec, known, broken)
    for spec in (DELTAS, DEAD_LETTERS):
        known = lake.known(spec.name)
        known = lake.ensure(spec) if known.version < 0 else lake.widen(spec)
        if known.opening:
            _open(lake, spec, known.opening)
    return noticed


def committed_number(lake: Lake, spec: TableSpec) -> int:
    """Number of the last plan that the table holds; 0 if it holds none."""
    return lake_files.marker(lake.path(spec.name), app_id(spec.name, lake.known(spec.name).generation)) or 0


def plan_store(lake: Lake, generation: int | None = None) -> PlanStore:
    """The plans; both tables follow the plans of `deltas`."""
    return PlanStore(
        lake.home.plans / DELTAS.name, lake.known(DELTAS.name).generation if generation is None else generation
    )


def read_log(lake: Lake, paths: Sequence[Path]) -> "DataFrame":
    """Read segments in Spark; the schema is given, so Spark opens no file to guess it."""
    if not paths:
        return lake.spark.createDataFrame([], LOG_DDL)
    return lake.spark.read.schema(LOG_DDL).parquet(*(str(path) for path in paths))


@contextmanager
def scratch(lake: Lake) -> Iterator[Path]:
    """A temporary directory for suspects, inside the home, where all workers of a cluster can read it.

    Hold the locks of both tables when you call this: `remove_scratch` relies on it.
    """
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=lake.home.plans) as directory:
        yield Path(directory)


def remove_scratch(home: Home) -> None:
    """Remove what killed processes left. Hold the locks of both tables: then no process uses any of it."""
    for path in home.plans.glob(f"{SCRATCH}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def _replace(lake: Lake, spec: TableSpec, hours: Hours, number: int, *, is_opening: bool = False) -> None:
    log, store = Log(lake.home), plan_store(lake)
    entries = _needed(spec, lambda: log.entries_of(*store.all_committed(number)), hours)
    segments = [Segment(entry, path) for entry, path in zip(entries, log.verify(entries), strict=True)]
    with scratch(lake) as directory:
        aside = prefilter(segments, known_files=(), target=directory / "aside.parquet")
        duplicates = find_duplicates(lake.spark, aside, known_files=())
        if spec is DELTAS:
            log_rows = read_log(lake, [segment.path for segment in segments])
            rows = duplicates.drop_copies(accepted_deltas(log_rows))
            if (bases := bases_of(lake)) is not None:
                rows = rows.transform(without_payloads, bases)
        else:
            rows = duplicates.letters
        lake.replace(spec, _only(rows, spec, hours), hours=hours, plan_number=number if is_opening else None)


def _needed(spec: TableSpec, committed: Callable[[], Iterator[Entry]], hours: Hours) -> list[Entry]:
    """The committed segments that the hours of a table can depend on.

    Duplicates of a delta share its event hour, so an hour of `deltas` depends on the segments that touch it. A dead
    letter may be a duplicate of a delta that arrived at any time before, so an hour of receipt depends on the segments
    received in it and on all that touch the same event hours.
    """
    if hours is None:
        return list(committed())
    if spec is DELTAS:
        return [entry for entry in committed() if _any_in(touched_hours([entry]).event, hours)]
    received = [entry for entry in committed() if _any_in(touched_hours([entry]).receipt, hours)]
    events = touched_hours(received).event
    numbers = {(entry.shard, entry.number) for entry in received}
    return [
        entry
        for entry in committed()
        if (entry.shard, entry.number) in numbers or touched_hours([entry]).event & events
    ]


def _any_in(starts: frozenset[int], hours: Range | Sequence[int]) -> bool:
    return any(hours.holds(start) for start in starts) if isinstance(hours, Range) else not starts.isdisjoint(hours)


def _only(rows: "DataFrame", spec: TableSpec, hours: Hours) -> "DataFrame":
    return rows if hours is None else rows.where(partition_predicate(spec.partition_by, hours))


def _begin_generation(lake: Lake, spec: TableSpec, known: KnownTable, broken: Break) -> None:
    """Decide what the new generation has to rebuild, and record it before the work begins."""
    path = lake.path(spec.name)
    lake.forget_cached_tables()
    app, seen = app_id(spec.name, known.generation), lake_files.highest_version(path)
    readable = lake_files.readable_state(path)
    number = max(known.number, (lake_files.marker(path, app) or 0) if readable else 0)
    if broken.left_version is None:
        set_aside(lake.home, spec.name, broken.why, lake.clock())
    state = lake_files.table_state(path)
    if spec is DEAD_LETTERS:
        # Dead letters are committed first, so every plan in `deltas` was in them, even if the memory says less.
        number = max(number, lake.known(DELTAS.name).number, committed_number(lake, DELTAS))
    else:
        plan_store(lake, known.generation + 1).adopt(plan_store(lake, known.generation))
    lake.known_file(spec.name).write(
        KnownTable(
            generation=known.generation + 1,
            table_id=state.table_id if state else "",
            version=state.version if state else -1,
            commit=(lake_files.commit_sha256(path, state.version) or "") if state else "",
            number=number,
            opening=Opening(number, _lost_hours(lake, spec, known, broken, number)),
            edits=known.edits,
            floor=next_floor(known, seen),
        )
    )


def _lost_hours(lake: Lake, spec: TableSpec, known: KnownTable, broken: Break, number: int) -> list[int] | None:
    """Hours touched by the plans whose rows are missing from the table; None means: rebuild everything."""
    if broken.left_version is None:
        return None
    left = lake_files.marker(lake.path(spec.name), app_id(spec.name, known.generation), broken.left_version)
    if left is None:
        return None
    plans = list(plan_store(lake).all_committed(number))
    touched = touched_hours(Log(lake.home).entries_of(*plans[left:]))
    return sorted(touched.event if spec is DELTAS else touched.receipt)


def _open(lake: Lake, spec: TableSpec, opening: Opening) -> None:
    """Make the replacing commit of a new generation, then remember that it is there."""
    if opening.number and opening.hours != [] and committed_number(lake, spec) < opening.number:
        _replace(lake, spec, opening.hours, opening.number, is_opening=True)
    elif committed_number(lake, spec) < opening.number:
        # No row: this moves the marker and nothing else.
        lake.append_once(spec, lake.read(spec.name).limit(0), number=opening.number)
    known = lake.known(spec.name)
    lake.known_file(spec.name).write(msgspec.structs.replace(known, opening=None))
