"""The record of a materialization (O1): one typed value, under one key of the orchestrator's metadata.

Belongs here: the model, and how it is written to and read from metadata. Does not belong here: how its numbers are
computed. Importing this does not import Dagster.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from resources.last_events import last_made
from tidemark.model.errors import TidemarkError

if TYPE_CHECKING:
    from dagster import DagsterInstance, EventLogRecord

RECORD_KEY = "tidemark/record"


class RecordError(TidemarkError):
    """A materialization has no record, or one that this version cannot read."""


# Records of older versions must stay readable: so these fields keep their stored names.
_STORED = {"generation": "lineage", "input_generations": "input_lineages"}


class Record(Struct, frozen=True, kw_only=True, rename=_STORED):
    """The facts about one partition of one asset after it was materialized."""

    asset: str
    partition: str | None
    generation: int
    table_version: int
    table_id: str
    input_versions: dict[str, int] = {}
    input_generations: dict[str, int] = {}
    epochs: dict[int, tuple[int, int]] = {}  # shard → first epoch of the partition's rows, and the one after the last
    applied: dict[int, int] = {}  # shard → epoch, as of when the rows were written
    flushed: dict[int, int] = {}
    durable: dict[int, int] = {}
    watermark_us: int | None = None  # event time; the minimum over shards and streams
    held_by: str | None = None  # the shard and stream that keeps the watermark low
    rows_in: int = 0
    rows_out: int = 0
    rows_late: int = 0
    rows_refused: int = 0
    bytes: int = 0
    duration_ms: int = 0
    carried_in: str | None = None  # checksum of the carry-over from the partition before, if there is one
    carried_out: str | None = None  # checksum of its own carry-over to the next
    definition: str | None = None  # hash of the definition that the rows follow, if a file defines it
    # Of `deltas`: "namespace/kind" → the version in which its deltas in this partition last changed; empty: not known.
    changed: dict[str, int] = {}
    as_of_us: int | None = None  # the time of a table that is as of one time
    recorded_us: int | None = None  # when it was recorded; the watermark's lag is measured from it

    @property
    def watermark_lag_s(self) -> float | None:
        """How far event time was behind the clock when this was recorded."""
        if self.recorded_us is None or self.watermark_us is None:
            return None
        return (self.recorded_us - self.watermark_us) / 1e6

    def changed_by(self, is_wanted: Callable[[str], bool]) -> int:
        """The version in which deltas of these namespaces and kinds last changed; -1 if the partition has none."""
        if not self.changed:
            return self.table_version
        return max((version for source, version in self.changed.items() if is_wanted(source)), default=-1)

    def to_metadata(self) -> dict[str, Any]:
        """As metadata of a materialization: the few numbers that the orchestrator's pages plot, and the record.

        The pages show them in this order: numbers for people first, and the whole record below them.
        """
        from dagster import MetadataValue

        rows = "dagster/row_count" if self.partition is None else "dagster/partition_row_count"
        return {
            rows: self.rows_out,
            **{name: number for name, number in self._plotted().items() if number is not None},
            RECORD_KEY: MetadataValue.json(msgspec.to_builtins(self, str_keys=True)),
        }

    def _plotted(self) -> dict[str, int | float | None]:
        """The values that the orchestrator draws over time, a curve each; epochs are the lowest over the shards."""
        return {
            "durable_epoch": min(self.durable.values(), default=None),
            "flushed_epoch": min(self.flushed.values(), default=None),
            "applied_epoch": min(self.applied.values(), default=None),
            # In seconds since 1970, because the orchestrator draws numbers only.
            "watermark_s": None if self.watermark_us is None else self.watermark_us / 1e6,
            "watermark_lag_s": self.watermark_lag_s,
            "rows_in": self.rows_in,
            "rows_late": self.rows_late,
            "rows_refused": self.rows_refused,
            "bytes": self.bytes,
            "seconds": self.duration_ms / 1000,
            "table_version": self.table_version,
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Record":
        """Read it back; the inverse of `to_metadata`."""
        found = metadata.get(RECORD_KEY)
        if found is None:
            raise RecordError("This materialization has no record of Tidemark's. Materialize the partition again.")
        value = getattr(found, "value", getattr(found, "data", found))
        try:
            return msgspec.convert(value, cls, strict=False, str_keys=True)
        except msgspec.ValidationError as error:
            raise RecordError(
                f"This materialization's record is of another version of Tidemark ({error}). "
                "Materialize the partition again."
            ) from error

    @classmethod
    def latest(cls, instance: "DagsterInstance", asset: str, partition: str | None = None) -> "Record":
        """The record of the asset's (or the partition's) last materialization."""
        from dagster import AssetKey, AssetRecordsFilter

        chosen = AssetRecordsFilter(AssetKey(asset), asset_partitions=None if partition is None else [partition])
        events = instance.fetch_materializations(chosen, limit=1).records
        if not events:
            where = asset if partition is None else f"{asset}, partition {partition},"
            raise RecordError(f"{where} has never been materialized. Materialize it first: ./tidemark demo, or the UI.")
        return _record_of(events[0])

    @classmethod
    def found(cls, instance: "DagsterInstance", asset: str) -> "Record | None":
        """The same of an asset; None if there is none that can be read."""
        try:
            return cls.latest(instance, asset)
        except RecordError:
            return None

    @classmethod
    def latest_by_partition(
        cls,
        instance: "DagsterInstance",
        asset: str,
        partitions: Iterable[str] | None = None,
        *,
        seen: "dict[int, Record] | None" = None,
    ) -> "dict[str, Record]":
        """The last record of every partition (or of the given ones) that has one.

        A materialization without a record, or with an unreadable one, counts as missing. A caller that asks repeatedly
        keeps `seen`, by the number of the event, and pays only for new ones; before each look it has to forget numbers
        that were given again (`forget_reused`).
        """
        from dagster import AssetKey, DagsterEventType

        ids = instance.event_log_storage.get_latest_storage_id_by_partition(
            AssetKey(asset), DagsterEventType.ASSET_MATERIALIZATION, None if partitions is None else set(partitions)
        )
        return _read(instance, asset, ids, {} if seen is None else seen)

    @classmethod
    def latest_by_table(
        cls, instance: "DagsterInstance", assets: Collection[str], *, seen: "dict[int, Record]"
    ) -> "dict[str, dict[str, Record]]":
        """The same of many assets, with one question for all of them beside the events that are new."""
        return {
            asset: _read(instance, asset, {key: number for key, number in made.items() if key}, seen)
            for asset, made in last_made(instance, assets).items()
        }


def forget_reused(instance: "DagsterInstance", seen: dict[int, Record]) -> None:
    """Forget all records if numbers of their events may be those of other events now; call it before each look.

    Events do not change, but SQLite gives a number again when no higher one is left: after somebody has deleted runs or
    wiped materializations, or in the database of a backup. Then the highest number that was seen was given up, too.
    """
    from dagster import AssetKey, AssetRecordsFilter

    if not seen:
        return
    last = max(seen)
    chosen = AssetRecordsFilter(AssetKey(seen[last].asset), storage_ids=[last])
    if [_record_or_none(event) for event in instance.fetch_materializations(chosen, limit=1).records] != [seen[last]]:
        seen.clear()


def believed(record: Record | None, ceiling_us: int | None) -> int | None:
    """The watermark of a record, unless it is above the ceiling: then it came from a wrong clock (C15)."""
    found = record.watermark_us if record else None
    return None if found is not None and ceiling_us is not None and found > ceiling_us else found


def not_below(
    watermark_us: int | None, held_by: str | None, previous: Record | None, ceiling_us: int | None
) -> tuple[int | None, str | None]:
    """A watermark and what keeps it low, but never below the one recorded before (T3).

    A stream that is new, or that was idle for long, may be far behind the others; that takes no promise back. Only a
    reset of the log's clock does, and sets a ceiling (C15).

    """
    before = believed(previous, ceiling_us)
    if previous and before is not None and (watermark_us is None or watermark_us < before):
        return before, previous.held_by
    return watermark_us, held_by


def _read(
    instance: "DagsterInstance", asset: str, ids: Mapping[str, int], seen: "dict[int, Record]"
) -> "dict[str, Record]":
    """The records of partitions by the numbers of their events; those that were not seen before are fetched."""
    from dagster import AssetKey, AssetRecordsFilter

    found = {
        number: record
        for partition, number in ids.items()
        if (record := seen.get(number)) and (record.asset, record.partition) == (asset, partition)
    }
    unseen = sorted(set(ids.values()) - found.keys())
    for start in range(0, len(unseen), 500):
        chunk = unseen[start : start + 500]
        chosen = AssetRecordsFilter(AssetKey(asset), storage_ids=chunk)
        events = instance.fetch_materializations(chosen, limit=len(chunk)).records
        read = {event.storage_id: record for event in events if (record := _record_or_none(event))}
        found.update(read)
        seen.update(read)
    return {partition: found[number] for partition, number in ids.items() if number in found}


def _record_of(event: "EventLogRecord") -> Record:
    materialization = event.asset_materialization
    return Record.from_metadata(materialization.metadata if materialization else {})


def _record_or_none(event: "EventLogRecord") -> Record | None:
    try:
        return _record_of(event)
    except RecordError:
        return None
