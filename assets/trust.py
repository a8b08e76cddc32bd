"""Whether a partition may be built upon (O4): one answer for commands, for the automation, and for a run that begins.

Belongs here: what speaks against a partition, and the refusal of a run whose input is not to be built upon. Does not
belong here: how rows are judged (`expectations`), how an edit is noticed (`tidemark/tables/known_table.py`), which
partitions hang on which (`dependent_partitions.py`). Importing this needs neither Spark nor Dagster.

It is asked twice. Commands and sensors ask `found_wrong` before they request a run. The run asks again when it begins:
`refuse_wrong` for verdicts, and `refuse_edited` for edits, with the lock of its table held and the version of its input
chosen. So an edit that comes after the request is not laundered either. Only an input without a verdict does not stop a
run that has begun: a drain beside it may have committed and not judged yet, and what it finds wrong later is repaired
by writing it anew, which makes everything that was made of it stale.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from assets.dependents import dependent_partitions
from assets.graph import Derived
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.names import CHECK_NAME
from assets.tables import TABLES
from resources.lake import Lake, LakeError, TableSpec
from tidemark.model.ranges import Range
from tidemark.model.timegrid import WHOLE
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import Edit

if TYPE_CHECKING:
    from dagster import AssetCheckKey, DagsterInstance
    from pyspark.sql import SparkSession

    from resources.dagster_internals import AssetCheckExecutionRecord

# Enough to see where to look.
NAMED = 3


class WrongInputError(LakeError):
    """Rows were to be made from a partition that was found wrong."""


class EditedInputError(WrongInputError):
    """Rows were to be made from a partition that somebody else has changed."""


def found_wrong(home: Home, instance: "DagsterInstance", table: str) -> set[str]:
    """Partitions of a table that must not be built upon: found wrong, edited, or not judged in their present form.

    A table without partitions is one as a whole, and may be built upon until it is found wrong.
    """
    against = edited_keys(home, table)
    if TABLES[table].is_whole:
        return against | ({WHOLE} if _is_found_wrong(instance, table) else set())
    return against | failed(instance, table) | unjudged(instance, table)


def unfinished(home: Home, instance: "DagsterInstance", table: str) -> set[str]:
    """Partitions that were written and not found right since: they are made again until they are.

    What somebody else has edited is shown and not overwritten (decision 0010); but a table without partitions is folded
    as a whole, which repairs it.
    """
    if TABLES[table].is_whole:
        return {WHOLE} if _is_unfinished(home, instance, table) else set()
    return (failed(instance, table) | unjudged(instance, table)) - edited_keys(home, table)


def edited(lake: Lake, table: str) -> dict[str, Edit]:
    """Partitions, by key, in which somebody else has changed rows; of a table of buckets, it as a whole."""
    spec = TABLES[table]
    return {WHOLE if spec.buckets else spec.grain.key(start): edit for start, edit in lake.edits(table).items()}


def edited_keys(home: Home, table: str) -> set[str]:
    """The same, keys alone, for who has no lake at hand."""
    return set(edited(Lake(home, _no_session), table))


def failed(instance: "DagsterInstance", table: str) -> set[str]:
    """Partitions that were found wrong when they were judged last."""
    from resources.dagster_internals import AssetCheckExecutionRecordStatus

    return {
        info.partition_key
        for info in instance.event_log_storage.get_asset_check_partition_info([_check(table)])
        if info.partition_key and info.latest_execution_status == AssetCheckExecutionRecordStatus.FAILED
    }


def unjudged(instance: "DagsterInstance", table: str) -> set[str]:
    """Partitions whose last materialization has no verdict yet."""
    from dagster import AssetKey, DagsterEventType

    storage, kind = instance.event_log_storage, DagsterEventType.ASSET_MATERIALIZATION
    materialized = storage.get_latest_storage_id_by_partition(AssetKey(table), kind)
    judged = {
        info.partition_key: info.latest_target_materialization_storage_id
        for info in storage.get_asset_check_partition_info([_check(table)])
    }
    return {partition for partition, storage_id in materialized.items() if judged.get(partition) != storage_id}


def refuse_wrong(instance: "DagsterInstance", home: Home, derived: Derived, ranges: Sequence[Range]) -> None:
    """Raise if anything in the ranges is made of a partition that was found wrong when it was judged last."""
    for source in _inputs(derived):
        if source is not derived.spec:
            wrong = {source.grain.start(key) for key in failed(instance, source.name)}
            if starts := _below(home, derived, source.name, wrong, ranges):
                raise _wrong_input(derived.spec.name, source, starts)


def refuse_any_wrong(instance: "DagsterInstance", target: str, *inputs: str) -> None:
    """The same for a table that is made of all of its inputs, whatever partition it is."""
    for source in (TABLES[table] for table in inputs):
        if source.is_whole:
            starts = {0} if _is_found_wrong(instance, source.name) else set()
        else:
            starts = {source.grain.start(key) for key in failed(instance, source.name)}
        if starts:
            raise _wrong_input(target, source, starts)


def refuse_edited(lake: Lake, derived: Derived, ranges: Sequence[Range]) -> None:
    """Raise if anything in the ranges is made of a partition that somebody has edited. Choose the version first.

    Then an edit that is not seen here is not in that version either. Of the table itself, where an hour is made of the
    one before, hours that are written anew are edited no more.
    """
    for source in _inputs(derived):
        edits = lake.edits(source.name)
        others = {start for start in edits if source is not derived.spec or not _is_in(start, ranges)}
        if others and (starts := _below(lake.home, derived, source.name, others, ranges)):
            raise _edited_input(derived.spec.name, source, {start: edits[start] for start in sorted(starts)})


def refuse_any_edit(lake: Lake, target: str, *inputs: str) -> None:
    """The same for a table that is made of all of its inputs, whatever partition it is."""
    for table in inputs:
        if edits := lake.edits(table):
            raise _edited_input(target, TABLES[table], edits)


def _inputs(derived: Derived) -> Iterable[TableSpec]:
    """The tables that it is made from, each once; itself too where an hour is made of the one before."""
    return {need.table.name: need.table for need in derived.needs}.values()


def _below(home: Home, derived: Derived, table: str, starts: set[int], ranges: Sequence[Range]) -> set[int]:
    """Those of the partitions of an input that anything in the ranges is made of."""

    def is_below(some: set[int]) -> bool:
        return bool(some) and any(_is_in(own, ranges) for own in dependent_partitions(home, derived, {table: some}))

    # All together first: the log is read for each question, and the answer is nearly always no.
    return {start for start in starts if is_below({start})} if is_below(starts) else set()


def _is_in(start_us: int, ranges: Sequence[Range]) -> bool:
    return any(each.holds(start_us) for each in ranges)


def _wrong_input(target: str, source: TableSpec, starts: set[int]) -> WrongInputError:
    return WrongInputError(
        f"Nothing was computed: {target} is made of {_named(source, starts)}, which was found wrong. "
        f"{_remedy(source)}; after that this goes on by itself."
    )


def _edited_input(target: str, source: TableSpec, edits: dict[int, Edit]) -> EditedInputError:
    first = next(iter(edits.values()))
    return EditedInputError(
        f"Nothing was computed: {target} is made of {_named(source, edits)}, where somebody else has changed rows "
        f"({first.operation or 'a commit'} in version {first.version}). {_remedy(source)}; after that this goes on by "
        "itself."
    )


def _named(source: TableSpec, starts: Iterable[int]) -> str:
    """The partitions in words; a table without partitions by its name alone."""
    if source.is_whole:
        return source.name
    keys = [source.grain.key(start) for start in sorted(starts)]
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f"{source.name} {', '.join(keys[:NAMED])}{more}"


def _remedy(source: TableSpec) -> str:
    if source.is_whole:
        return f"Materialize {source.name} in the UI to write it anew"
    command = "rebuild" if source.name in (DELTAS.name, DEAD_LETTERS.name) else "backfill"
    return f"Write those partitions anew with ./tidemark {command}"


def _is_found_wrong(instance: "DagsterInstance", table: str) -> bool:
    """Whether a table that is judged as a whole was found wrong when it was judged last."""
    from resources.dagster_internals import AssetCheckExecutionRecordStatus

    last = _last_verdict(instance, table)
    return last is not None and last.status == AssetCheckExecutionRecordStatus.FAILED


def _is_unfinished(home: Home, instance: "DagsterInstance", table: str) -> bool:
    """Whether a table that is judged as a whole lies there without a good verdict on what was written last."""
    from dagster import AssetKey

    from resources.dagster_internals import AssetCheckExecutionRecordStatus

    event = instance.get_latest_materialization_event(AssetKey(table))
    if event is None or lake_files.readable_state(home.lake / table) is None:
        return False
    last = _last_verdict(instance, table)
    target = last.evaluation.target_materialization_data if last and last.evaluation else None
    is_about_it = target is not None and target.run_id == event.run_id
    return last is None or not is_about_it or last.status != AssetCheckExecutionRecordStatus.SUCCEEDED


def _last_verdict(instance: "DagsterInstance", table: str) -> "AssetCheckExecutionRecord | None":
    key = _check(table)
    return instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)


def _check(table: str) -> "AssetCheckKey":
    from dagster import AssetCheckKey, AssetKey

    return AssetCheckKey(AssetKey(table), CHECK_NAME)


def _no_session() -> "SparkSession":
    raise AssertionError("a question about files starts no JVM")
