"""A write through both doors, and the law that holds between them (`test_doors.py`)."""

import json
from datetime import datetime
from typing import Any

import pyarrow as pa

from tests.support.live import TEN_O_CLOCK
from tidemark import Reason
from tidemark.door.decode import Sent
from tidemark.door.ownership import own, own_columns
from tidemark.event_time.watermarks import Watermarks
from tidemark.log.groups import decode_group, encode_group
from tidemark.log.log_rows import LogRows
from tidemark.model.settings import Namespace, Settings
from tidemark.verdicts.arrival import Arrivals, NumberedWrite, VerdictCounts
from tidemark.verdicts.delta_hashes import with_hashes
from tidemark.verdicts.identities import Identities

SETTINGS = Settings(namespaces={"shop": Namespace(dimension=4)})


def decide(*writes: list[Any] | pa.RecordBatch) -> tuple[LogRows, list[VerdictCounts]]:
    arrivals = Arrivals(0, SETTINGS, Watermarks(SETTINGS), Identities(100))
    return arrivals.decide(
        [NumberedWrite(number, "web", number, TEN_O_CLOCK, write) for number, write in enumerate(writes, 1)]
    )


def by_rows(*deltas: Sent) -> tuple[LogRows, list[VerdictCounts]]:
    return decide(own(list(deltas)))


def by_columns(table: pa.Table | pa.RecordBatch) -> tuple[LogRows, list[VerdictCounts]]:
    return decide(with_hashes(own_columns(table)))


def without_raw(rows: LogRows) -> pa.RecordBatch:
    batch = rows.batch()
    return batch.select([name for name in batch.schema.names if name not in {"raw", "raw_bytes"}])


def texts_of(batch: pa.RecordBatch) -> list[str]:
    return [repr(row) for row in batch.to_pylist()]


def is_told(delta: dict[str, Any]) -> bool:
    """Whether JSON has words for all of it; the time of an event is a text there."""
    moment = delta.get("event_ts")
    try:
        return bool(json.dumps({**delta, "event_ts": str(moment) if type(moment) is datetime else moment}))
    except TypeError:
        return False


def as_json(delta: dict[str, Any]) -> bytes:
    moment = delta.get("event_ts")
    return json.dumps({**delta, **({"event_ts": moment.isoformat()} if type(moment) is datetime else {})}).encode()


def assert_same(table: pa.Table | pa.RecordBatch, rows: list[Any]) -> None:
    """The law, for a write in columns and the rows that say the same."""
    (found, outcomes), (expected, expected_outcomes) = by_columns(table), by_rows(*rows)
    if all(map(is_told, rows)):
        in_json = by_rows(*map(as_json, rows))[0]
        assert texts_of(without_raw(in_json)) == texts_of(without_raw(expected))
    assert texts_of(without_raw(found)) == texts_of(without_raw(expected))
    assert outcomes == expected_outcomes
    assert sum(outcomes[0]) == len(rows)
    stored = encode_group([], found)
    again = decode_group(memoryview(stored.head + stored.body.to_pybytes())).rows
    assert again is not None
    again.batch().validate(full=True)
    assert texts_of(again.batch()) == texts_of(found.batch())
    refused = [(row, sent) for row, sent in zip(found.batch().to_pylist(), rows, strict=True) if row["raw"] is not None]
    assert all(row["raw_bytes"] >= len(row["raw"]) for row, _ in refused)
    # What is wrong beside another delta only is right alone.
    told = [row for row, sent in refused if row["reason"] != Reason.ID_REUSE and is_told(sent)]
    if told:
        said = by_rows(*(row["raw"] for row in told))[0].batch()
        assert said["reason"].to_pylist() == [row["reason"] for row in told]


def columns_of(*deltas: dict[str, Any], **changed: pa.Array) -> pa.Table:
    """Deltas in columns as Arrow guesses them, some of these replaced."""
    table = pa.Table.from_pylist(list(deltas))
    for name, column in changed.items():
        at = table.schema.get_field_index(name)
        table = table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
    return table


def reasons(decided: tuple[LogRows, list[VerdictCounts]]) -> list[str | None]:
    found: list[str | None] = decided[0].batch()["reason"].to_pylist()
    return found
