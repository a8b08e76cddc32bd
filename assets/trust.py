"""Whether a partition may be built upon (O4): one answer for commands, for the automation, and for a run that begins.

Belongs here: the objections to a partition, and the refusal of a run whose input must not be built upon. Does not
belong here: how rows are checked (`expectations`), what passed and failed mean (`check_states.py`), how an edit is
noticed (`tidemark/tables/known_table.py`), which partitions depend on which (`dependents.py`). Importing this needs
neither Spark nor Dagster.

This is decided twice. Commands and the automation use `blocked` before they request a run of partitions, and
`found_wrong` before they request a run of a table that is made from all of its input. The run decides again when it
begins: `refuse_wrong` for check results, and `refuse_edited` for edits, while it holds the lock of its table and has
chosen the version of its input. So an edit that comes after the request is caught, too. Only an input without a check
result does not stop a run that has begun: a drain beside it may have committed and not checked yet. If that check
fails later, the partition is rewritten, which makes everything that was made from it stale.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from assets.check_states import CheckState, check_states, check_states_of
from assets.dependents import dependent_partitions
from assets.graph import By, Derived
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.tables import TABLES
from assets.vectors.schema import VECTOR_CHECKPOINTS
from resources.lake import Lake, LakeError, TableSpec
from tidemark.model.ranges import Range
from tidemark.model.timegrid import WHOLE
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import Edit

if TYPE_CHECKING:
    from dagster import DagsterInstance

# Enough to see where to look.
NAMED = 3


class WrongInputError(LakeError):
    """Rows were to be made from a partition that failed its check."""


class EditedInputError(WrongInputError):
    """Rows were to be made from a partition that another process has changed."""


class Cause(StrEnum):
    """Why a partition may not be built upon."""

    EDITED = "edited"
    FAILED = "failed"
    UNCHECKED = "unchecked"
    WAITING = "waiting"


class Objection(NamedTuple):
    """The objection to one partition: the cause, and the end of a sentence that begins with the partition's name."""

    cause: Cause
    words: str


FOUND_WRONG = Objection(Cause.FAILED, "whose check failed")
NOT_CHECKED = Objection(Cause.UNCHECKED, "which has not been checked yet")
WAITS_ITSELF = Objection(Cause.WAITING, "which waits itself")

# Table → partition → the objection to it.
Objections = Mapping[str, Mapping[str, Objection]]


def states_of(instance: "DagsterInstance", table: str) -> dict[str, CheckState]:
    """The state of each partition by its last check; a table without partitions has one state as a whole.

    A result about the whole table from before it had partitions says nothing about any of them.
    """
    return _by_partition(table, check_states(instance, table))


def _by_partition(table: str, states: Mapping[str | None, CheckState]) -> dict[str, CheckState]:
    has_partitions = table in TABLES and not TABLES[table].is_whole
    return {key or WHOLE: state for key, state in states.items() if key or not has_partitions}


def objections(home: Home, instance: "DagsterInstance", table: str) -> dict[str, Objection]:
    """Partitions of a table that must not be built upon, and why: edited, failed, or not checked as they are now.

    A table without partitions counts as one, and may be built upon until it fails its check.
    """
    found: dict[str, Objection] = {}
    for key, state in states_of(instance, table).items():
        if state.has_failed:
            found[key] = FOUND_WRONG
        elif state.is_open and not TABLES[table].is_whole:
            found[key] = NOT_CHECKED
    return found | {key: _edited(edit) for key, edit in edited(Lake(home), table).items()}


def found_wrong(home: Home, instance: "DagsterInstance", table: str) -> set[str]:
    """The same, only the keys."""
    return set(objections(home, instance, table))


def against(home: Home, instance: "DagsterInstance", *tables: str) -> dict[str, tuple[str, ...]]:
    """Table → partitions that must not be built upon, if any; for tables that are made from whole inputs."""
    found = {table: tuple(sorted(found_wrong(home, instance, table))) for table in tables}
    return {table: keys for table, keys in found.items() if keys}


def waits_for(wrong: Mapping[str, Sequence[str]]) -> str:
    """Why no table that is made from these tables is requested, for people."""
    return " ".join(f"Waits until {table} passes its checks again: {', '.join(keys)}." for table, keys in wrong.items())


def repair_first(table: str, keys: Sequence[str], before: str) -> str:
    """Why nothing before a certain time is removed from a table for good, for people; the keys in order."""
    return (
        f"{len(keys)} partition(s) of {table} before {before} failed their check or were not checked, first {keys[0]}. "
        f"Nothing was removed; repair them first, ./tidemark check says what is wrong."
    )


def blocked(
    home: Home,
    instance: "DagsterInstance",
    derived: Derived,
    wanted: Iterable[str],
    *,
    together: Mapping[str, Collection[str]] | None = None,
    waiting: Mapping[str, Iterable[str]] | None = None,
) -> dict[str, str]:
    """The wanted partitions that must not be computed now → why. Commands and the automation both use this.

    `together` are partitions of inputs that the same run rewrites first: its own checks stop the later steps, so
    earlier check results do not count. `waiting` are partitions of inputs that are not computed either.
    """
    together, keys, found = together or {}, set(wanted), dict[str, str]()
    inputs: dict[str, Mapping[str, Objection]] = {}
    for table in derived.inputs:
        mine = dict.fromkeys((waiting or {}).get(table, ()), WAITS_ITSELF) | objections(home, instance, table)
        inputs[table] = {key: why for key, why in mine.items() if key not in together.get(table, ())}
    edits = edited(Lake(home), derived.spec.name) if derived.is_carried and keys else {}
    while True:
        # If an hour is made from the one before, edits in the table's own hours go away when they are rewritten.
        own = {key: _edited(edit) for key, edit in edits.items() if key not in keys - found.keys()}
        now = made_of_any(home, derived, keys, {**inputs, derived.spec.name: own})
        if now.keys() == found.keys():
            return now
        found = now


def made_of_any(home: Home, derived: Derived, wanted: Collection[str], wrong: Objections) -> dict[str, str]:
    """The wanted partitions that are made from any of the given ones → from which, and the objection to it."""
    spec = derived.spec
    starts = {table: {TABLES[table].grain.start(key) for key in keys} for table, keys in wrong.items() if keys}
    # All together first: each call reads the log, and the answer is nearly always none.
    if not starts or not wanted or not _hanging(home, derived, starts, wanted):
        return {}
    found: dict[str, str] = {}
    for cause in Cause:
        for table, why in wrong.items():
            source = TABLES[table]
            some = {source.grain.start(key): words for key, (kind, words) in why.items() if kind is cause}
            for key in _hanging(home, derived, {table: set(some)}, wanted) - found.keys() if some else ():
                below = _inputs_of(derived, source, spec.grain.start(key), some)
                found[key] = f"{_named(source, below)}, {some[min(below)]}"
    return found


def unfinished(
    home: Home, instance: "DagsterInstance", tables: Collection[str], *, is_failed_too: bool = True
) -> dict[str, set[str]]:
    """Table → partitions that were written and have not passed a check since: they are made again until they pass.

    Without `is_failed_too` only those that were not checked.

    Partitions that another process has edited are shown and not overwritten (decision 0010). But a table without
    partitions is folded as a whole, and so is a bucket, which repairs it.
    """
    states = check_states_of(instance, tables)
    return {
        table: _unfinished(home, instance, table, _by_partition(table, states[table]), is_failed_too)
        for table in tables
    }


def _unfinished(
    home: Home, instance: "DagsterInstance", table: str, states: Mapping[str, CheckState], is_failed_too: bool
) -> set[str]:
    from dagster import AssetKey

    if TABLES[table].is_whole:
        return {WHOLE} if _is_unfinished(home, instance, table, states) else set()
    found = {key for key, state in states.items() if state.is_open or (is_failed_too and state.has_failed)}
    if not found:
        return found
    if not TABLES[table].buckets:
        return found - edited(Lake(home), table).keys()
    if lake_files.readable_state(home.lake / table) is None:
        return set()
    # A partition that was refused before it was ever made is made only when it has deltas.
    return found & instance.event_log_storage.get_materialized_partitions(AssetKey(table))


def edited(lake: Lake, table: str) -> dict[str, Edit]:
    """Partitions, by key, in which another process has changed rows; a table without partitions counts as a whole.

    A row outside all buckets counts for the bucket that it would fall into, so that there is something to show
    and repair.
    """
    spec, edits = TABLES[table], lake.edits(table)
    if spec.buckets:
        return {WHOLE if spec.is_whole else spec.grain.key(n % spec.buckets): edit for n, edit in edits.items()}
    return {spec.grain.key(start): edit for start, edit in edits.items()}


def failed(instance: "DagsterInstance", table: str) -> set[str]:
    """Partitions that failed their last check."""
    return {key for key, state in states_of(instance, table).items() if state.has_failed}


def unchecked(instance: "DagsterInstance", table: str) -> set[str]:
    """Partitions whose last materialization has no check result yet."""
    return {key for key, state in states_of(instance, table).items() if state.is_open}


def refuse_wrong(instance: "DagsterInstance", home: Home, derived: Derived, ranges: Sequence[Range]) -> None:
    """Raise if anything in the ranges is made from a partition that failed its last check."""
    for source in _inputs(derived):
        if source is not derived.spec:
            wrong = _starts(source, failed(instance, source.name))
            if starts := _below(home, derived, source.name, wrong, ranges):
                raise WrongInputError(_refusal(derived.spec.name, source, starts, FOUND_WRONG))


def refuse_edited(lake: Lake, derived: Derived, ranges: Sequence[Range]) -> None:
    """Raise if anything in the ranges is made from a partition that another process has edited.

    Choose the version first: then an edit that is not seen here is not in that version either. If an hour is made from
    the one before, edits in the table's own hours go away when they are rewritten.
    """
    for source in _inputs(derived):
        edits = lake.edits(source.name)
        others = {start for start in edits if source is not derived.spec or not _is_in(start, ranges)}
        if others and (starts := _below(lake.home, derived, source.name, others, ranges)):
            raise EditedInputError(_refusal(derived.spec.name, source, starts, _edited(edits[min(starts)])))


def refuse_any(instance: "DagsterInstance", lake: Lake, target: str, *inputs: str) -> None:
    """Both, for a table that is made from all partitions of its inputs."""
    sources = [TABLES[table] for table in inputs]
    for source in sources:
        if edits := lake.edits(source.name):
            raise EditedInputError(_refusal(target, source, edits, _edited(edits[min(edits)])))
    for source in sources:
        if starts := _starts(source, failed(instance, source.name)):
            raise WrongInputError(_refusal(target, source, starts, FOUND_WRONG))


def _inputs(derived: Derived) -> Iterable[TableSpec]:
    """The tables that it is made from, each once; also itself if an hour is made from the one before."""
    return {need.table.name: need.table for need in derived.needs}.values()


def _below(home: Home, derived: Derived, table: str, starts: set[int], ranges: Sequence[Range]) -> set[int]:
    """The given partitions of an input that anything in the ranges is made from."""

    def is_below(some: set[int]) -> bool:
        return bool(some) and any(_is_in(own, ranges) for own in dependent_partitions(home, derived, {table: some}))

    # All together first: each call reads the log, and the answer is nearly always no.
    return {start for start in starts if is_below({start})} if is_below(starts) else set()


def _is_in(start_us: int, ranges: Sequence[Range]) -> bool:
    return any(each.holds(start_us) for each in ranges)


def _hanging(home: Home, derived: Derived, starts: Mapping[str, set[int]], wanted: Collection[str]) -> set[str]:
    """The wanted partitions that are made from any input partition with one of these starts."""
    return {derived.spec.grain.key(start) for start in dependent_partitions(home, derived, starts)}.intersection(wanted)


def _inputs_of(derived: Derived, source: TableSpec, own: int, starts: Iterable[int]) -> set[int]:
    """The input's partitions that one partition is made from; all of them if only the log or the tables can tell."""
    needs = [need for need in derived.needs if need.table.name == source.name]
    if any(need.by is not By.EVENT for need in needs):
        return set(starts)
    return {start for need in needs for start in need.inputs_of(own, derived.spec.grain.width_us(own))}.intersection(
        starts
    )


def _starts(source: TableSpec, keys: Iterable[str]) -> set[int]:
    """The starts of partitions; one number for a table without partitions."""
    return {0 if source.is_whole else source.grain.start(key) for key in keys}


def _edited(edit: Edit) -> Objection:
    return Objection(Cause.EDITED, f"where {edit.said}")


def _refusal(target: str, source: TableSpec, starts: Iterable[int], why: Objection) -> str:
    return (
        f"Nothing was computed: {target} is made of {_named(source, starts)}, {why.words}. {_remedy(source)}; after "
        "that this goes on by itself."
    )


def _named(source: TableSpec, starts: Iterable[int]) -> str:
    """The partitions in words; only the name for a table without partitions."""
    if source.is_whole:
        return source.name
    keys = [source.grain.key(start) for start in sorted(starts)]
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f"{source.name} {', '.join(keys[:NAMED])}{more}"


def _remedy(source: TableSpec) -> str:
    if source.is_whole:
        return f"Materialize {source.name} in the UI to write it anew"
    if source.buckets:
        return f"Fold those buckets anew with ./tidemark {'compact' if source is VECTOR_CHECKPOINTS else 'drain'}"
    command = "rebuild" if source.name in (DELTAS.name, DEAD_LETTERS.name) else "backfill"
    return f"Write those partitions anew with ./tidemark {command}"


def _is_unfinished(home: Home, instance: "DagsterInstance", table: str, states: Mapping[str, CheckState]) -> bool:
    """Whether a table that is checked as a whole has not passed its check since it was last written."""
    from dagster import AssetKey

    if instance.get_latest_materialization_event(AssetKey(table)) is None:
        return False
    if lake_files.readable_state(home.lake / table) is None:
        return False
    return states.get(WHOLE) is not CheckState.PASSED
