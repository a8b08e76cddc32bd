"""The last materialization and the last check result of each partition, of many tables with one question each.

Belongs here: the two questions to the orchestrator's storage of events. Its own methods answer for one table at a time,
with several statements: of a hundred tables, most of which nothing has touched, asking would cost more than making the
others. Does not belong here: what follows from the numbers (`assets/check_states.py`), records (`record.py`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dagster import DagsterInstance


class LastResult(NamedTuple):
    """The last result of a partition's check: the orchestrator's word for it, and the numbers of events."""

    partition: str | None
    status: str
    event: int
    target: int | None  # the materialization that it is about


def last_made(instance: "DagsterInstance", tables: Collection[str]) -> "dict[str, dict[str | None, int]]":
    """Table → partition → the number of its last materialization; None stands for one of a table as a whole."""
    found: dict[str, dict[str | None, int]] = {table: {} for table in tables}
    for table, partition, number in _rows(instance, _last_materializations(instance, tables)):
        found[table][partition] = number
    return found


def last_results(
    instance: "DagsterInstance", tables: Collection[str], check_name: str
) -> "dict[str, list[LastResult]]":
    """Table → the last result of the check of this name for each partition, also of a check that is under way."""
    import sqlalchemy as db

    from resources.dagster_internals import AssetCheckExecutionsTable

    of = AssetCheckExecutionsTable.c
    last = (
        db.select(db.func.max(of.id))
        .where(of.asset_key.in_(_names(tables)), of.check_name == check_name)
        # Very old results have none.
        .where(of.evaluation_event_storage_id.is_not(None))
        .group_by(of.asset_key, of.partition)
    )
    results = db.select(
        of.asset_key,
        of.partition,
        of.execution_status,
        of.evaluation_event_storage_id,
        of.materialization_event_storage_id,
    ).where(of.id.in_(last))
    found: dict[str, list[LastResult]] = defaultdict(list)
    for table, *result in _rows(instance, [results]):
        found[table].append(LastResult(*result))
    return found


def _last_materializations(instance: "DagsterInstance", tables: Collection[str]) -> Iterator[Any]:
    """One question for all tables; one more for each that was wiped: what was before that does not count."""
    import sqlalchemy as db
    from dagster import DagsterEventType

    from resources.dagster_internals import AssetKeyTable, SqlEventLogStorageTable

    of, names = SqlEventLogStorageTable.c, set(_names(tables))
    is_made = of.dagster_event_type == DagsterEventType.ASSET_MATERIALIZATION.value
    last = (
        db.select(of.asset_key, of.partition, db.func.max(of.id))
        .where(is_made)
        .group_by(of.asset_key, of.dagster_event_type, of.partition)
    )
    key = AssetKeyTable.c
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        wipes = db.select(key.asset_key, key.wipe_timestamp).where(key.wipe_timestamp.is_not(None))
        wiped = {name: at for name, at in connection.execute(wipes) if name in names}
    yield last.where(of.asset_key.in_(sorted(names - wiped.keys())))
    for name, at in wiped.items():
        yield last.where(of.asset_key == name, of.timestamp > at)


def _rows(instance: "DagsterInstance", questions: Iterable[Any]) -> Iterator[Any]:
    """The rows of some questions; of each, the first value is the name of a table."""
    from dagster import AssetKey

    for question in questions:
        with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
            rows = connection.execute(question).fetchall()
        names: dict[str, str] = {}
        for name, *more in rows:
            if name not in names:
                key = AssetKey.from_db_string(name)
                names[name] = key.to_user_string() if key else name
            yield names[name], *more


def _names(tables: Iterable[str]) -> list[str]:
    """Tables as the storage names them, in order: equal questions are then the same text."""
    from dagster import AssetKey

    return sorted(AssetKey(table).to_string() for table in tables)
