"""Homes of any age for `bench growth`, made without computing them.

Belongs here: the files that a home has after so many segments, plans, hours and producers. The program's own code
writes them, but without syncs, Spark or a run. The newest segments are real, because a start reads them.
"""

import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
from deltalake import DeltaTable

from assets.names import CHECK_NAME
from assets.tables import TABLES
from orchestration.instance import EVENTS_FILE, open_instance
from resources.lake import Lake
from resources.record import Record
from tidemark import Platform
from tidemark.log.batch_record import BatchRecord, Trigger, batch_hours
from tidemark.log.manifest import NOTHING_BEFORE, Entry, HourCounts, Manifest, Totals, checksum_of, line_of
from tidemark.log.manifest_files import day_file
from tidemark.model.timegrid import HOUR_US, MINUTE_US, floor_to, from_us, hour_key
from tidemark.shard_state.producers import ProducerState
from tidemark.shard_state.state import STATE_FILE, ShardState, save
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home
from tidemark.tables.known_table import app_id
from tidemark.tables.plans import Plan, PlannedSegment, PlanStore
from tidemark.tables.table_spec import TableSpec

DELTAS = "deltas"
EPOCHS, ROWS = 10, 1_000  # of a segment
STREAM = "shop/signal"
# The real segments together hold more than a start reads again.
REAL_SEGMENTS, REMEMBERED = 8, 5_000
SETTINGS = "recent_identities = {}\n"
# Commits older than this have left a table's log, as with Delta.
KEPT_LOG_HOURS = 30 * 24


@dataclass(frozen=True)
class Age:
    """The size of a home."""

    hours: int
    segments: int
    producers: int
    plans: int


class _Unsynced(RealDisk):
    """Nothing here needs to survive a crash."""

    class _System:
        def __getattr__(self, name: str) -> Any:
            return (lambda _: None) if name in {"fsync", "fdatasync"} else getattr(os, name)

    system = _System()


def make_home(root: Path, age: Age) -> dict[str, Any]:
    """A home of that age; returns the expected answers of every look at it."""
    home, disk = Home(root).create(SETTINGS.format(0)), _Unsynced()
    end_us = floor_to(time.time_ns() // 1_000, HOUR_US) - HOUR_US
    entries = list(_seal(home, age, end_us, disk))
    durable = entries[-1].to_epoch - 1
    _plan(home, age, entries, disk)
    _commit(home, age, end_us)
    _record(home, age, end_us, durable)
    names = (f"file-{number}" for number in range(age.producers))
    state = ShardState(last_received_us=end_us, producers={name: ProducerState(1, 1) for name in names})
    disk.make_directory(home.log(0))
    save(disk, home.log(0) / STATE_FILE, state)
    with Platform.open(home) as platform:
        producer = platform.producer("real")
        for number in range(REAL_SEGMENTS):
            producer.write([_signal(f"{number}-{place}", end_us + place) for place in range(ROWS)]).wait()
            platform.seal()
    home.settings_file.write_text(SETTINGS.format(REMEMBERED))
    return {
        "segments": age.segments + REAL_SEGMENTS,
        "rows": (age.segments + REAL_SEGMENTS) * ROWS,
        "durable": durable,
        "pending": REAL_SEGMENTS,
        "streams": [STREAM],
        "is_due": True,
    }


def _signal(delta_id: str, at_us: int) -> dict[str, Any]:
    payload = {"entity_id": "item-1", "signal": "view", "count": 1}
    return {"namespace": "shop", "kind": "signal", "delta_id": delta_id, "event_ts": at_us, "signal": payload}


def _seal(home: Home, age: Age, end_us: int, disk: RealDisk) -> Iterator[Entry]:
    """Lines of the manifest for segments without files, with one batch each."""
    disk.make_directory(home.segments(0))
    step_us, each = age.hours * HOUR_US // age.segments, age.producers // age.segments
    totals, previous = Totals(), NOTHING_BEFORE
    days: defaultdict[str, list[bytes]] = defaultdict(list)
    for number in range(1, age.segments + 1):
        sealed_us, first = end_us - (age.segments - number) * step_us, 1 + (number - 1) * EPOCHS
        names = (f"file-{place}" for place in range((number - 1) * each, number * each))
        batch = _batch(number, first, sealed_us - MINUTE_US)
        counts, hour = HourCounts(accepted=ROWS), hour_key(sealed_us - MINUTE_US)
        entry = Entry(
            shard=0,
            number=number,
            file=f"gone/{number:08d}.parquet",
            from_epoch=first,
            to_epoch=first + EPOCHS,
            lost=[],
            rows=ROWS,
            bytes=40 * ROWS,
            sha256=f"{number:064x}",
            verdicts=counts,
            event_hours={hour: counts},
            receipt_hours={hour: counts},
            stamp_hours={hour: ROWS},
            producers=dict.fromkeys(names, (1, 1)),
            watermarks={STREAM: sealed_us - MINUTE_US},
            sealed_us=sealed_us,
            incarnation=1,
            previous=previous,
            received_us=sealed_us,
            batch_hours=batch_hours([batch]),
            batches_sha256=f"{number:064x}",
        )
        totals = totals.plus(entry, [batch])
        line = line_of(msgspec.structs.replace(entry, totals=totals))
        days[day_file(sealed_us)].append(line)
        previous = checksum_of(line)
        yield entry
    for name, lines in days.items():
        (home.segments(0) / name).write_bytes(b"\n".join(lines) + b"\n")
    Manifest(home.segments(0), disk).repair()


def _batch(number: int, first: int, closed_us: int) -> BatchRecord:
    return BatchRecord(
        number=number,
        trigger=Trigger.TIME,
        also=(),
        from_epoch=first,
        to_epoch=first + EPOCHS,
        writes=EPOCHS,
        deltas=ROWS,
        duplicates=0,
        refused=0,
        keys=1,
        bytes=100 * ROWS,
        mean_bytes=100.0,
        min_event_us=closed_us - MINUTE_US,
        max_event_us=closed_us,
        opened_us=closed_us - MINUTE_US,
        closed_us=closed_us,
    )


def _plan(home: Home, age: Age, entries: list[Entry], disk: RealDisk) -> None:
    store = PlanStore(home.plans / DELTAS, Lake(home).known(DELTAS).generation, disk)
    for number in range(1, age.plans + 1):
        chosen = entries[age.segments * (number - 1) // age.plans : age.segments * number // age.plans]
        store.write(
            Plan(
                number=number,
                generation=store.generation,
                ranges={0: (chosen[0].from_epoch, chosen[-1].to_epoch)},
                segments=[PlannedSegment(0, each.number, each.file, each.sha256, each.bytes) for each in chosen],
                upto={0: chosen[-1].to_epoch},
                created_us=chosen[-1].sealed_us,
            )
        )


def timed_tables() -> dict[str, TableSpec]:
    """Tables that have partitions of time, an hour, a day, a week or a month each."""
    return {name: spec for name, spec in TABLES.items() if spec.divided_by and not spec.is_whole}


def _starts(spec: TableSpec, age: Age, end_us: int) -> list[int]:
    return list(spec.grain.starts(end_us - age.hours * HOUR_US, end_us))


def _commit(home: Home, age: Age, end_us: int) -> None:
    """Tables whose logs name a file for each partition, all of them in a checkpoint.

    Each of the last plans has a commit of its own; those of the others have left the log, so one stands for them all.
    """
    lake, kept = Lake(home), age.plans * min(KEPT_LOG_HOURS, age.hours) // age.hours
    for name, spec in timed_tables().items():
        app, path = app_id(name, lake.ensure(spec).generation), lake.path(name)
        starts = _starts(spec, age, end_us)
        begin = 0
        for version, number in enumerate(range(age.plans - kept + 1, age.plans + 1), 1):
            end = len(starts) * number // age.plans
            actions = [
                {"commitInfo": {"timestamp": end_us // 1_000, "operation": "WRITE", "operationParameters": {}}},
                {"txn": {"appId": app, "version": number, "lastUpdated": end_us // 1_000}},
                *(_file(spec, start) for start in starts[begin:end]),
            ]
            text = "".join(f"{json.dumps(action)}\n" for action in actions)
            (path / "_delta_log" / f"{version:020d}.json").write_text(text)
            begin = end
        DeltaTable(path).create_checkpoint()
        lake.known_file(name).record_commit(path, number=age.plans)


def _file(spec: TableSpec, start_us: int) -> dict[str, Any]:
    value = f"{from_us(start_us):%Y-%m-%d %H:%M:%S}"
    return {
        "add": {
            "path": f"{spec.partition_by}={start_us}/part-0.parquet",
            "partitionValues": {spec.partition_by: value},
            "size": 40 * ROWS,
            "modificationTime": start_us // 1_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": ROWS}),
        }
    }


def _record(home: Home, age: Age, end_us: int, durable: int) -> None:
    """The orchestrator's data: a record and a passed check of each partition, and the last drain."""
    lake = Lake(home)
    with open_instance(home) as instance:
        for name, spec in timed_tables().items():
            key = spec.grain.key(_starts(spec, age, end_us)[0])
            instance.report_runless_asset_event(_made(lake, name, key, durable))
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(asset_key=dg.AssetKey(name), check_name=CHECK_NAME, passed=True, partition=key)
            )
        instance.report_runless_asset_event(_made(lake, "drain", None, durable))
    database = sqlite3.connect(home.dagster / EVENTS_FILE)
    with database:
        for name, spec in timed_tables().items():
            keys = [spec.grain.key(start) for start in _starts(spec, age, end_us)]
            _repeat(database, json.dumps([name]), keys[0], keys[1:])
    database.close()


def _made(lake: Lake, name: str, key: str | None, durable: int) -> dg.AssetMaterialization:
    known = lake.known(name)
    record = Record(
        asset=name,
        partition=key,
        generation=known.generation,
        table_version=known.version,
        table_id=known.table_id,
        epochs={0: (1, durable + 1)},
        durable={0: durable},
    )
    return dg.AssetMaterialization(name, partition=key, metadata=record.to_metadata())


def _repeat(database: sqlite3.Connection, asset: str, first: str, keys: list[str]) -> None:
    """The record and the check result of one partition, repeated for others.

    Written directly into Dagster's SQLite file: a year has seventy thousand of each, and reporting one by one opens the
    database anew for each.
    """
    event, kind, moment = database.execute(
        "SELECT event, dagster_event_type, timestamp FROM event_logs WHERE asset_key = ? AND partition = ?",
        (asset, first),
    ).fetchone()
    (verdict,) = database.execute(
        "SELECT evaluation_event FROM asset_check_executions WHERE asset_key = ?", (asset,)
    ).fetchone()
    database.execute(
        "UPDATE asset_check_executions SET materialization_event_storage_id = "
        "(SELECT max(id) FROM event_logs WHERE asset_key = ? AND partition = ?) WHERE asset_key = ?",
        (asset, first, asset),
    )
    (last,) = database.execute("SELECT max(id) FROM event_logs").fetchone()
    database.executemany(
        "INSERT INTO event_logs (id, run_id, event, dagster_event_type, timestamp, asset_key, partition) "
        "VALUES (?, '', ?, ?, ?, ?, ?)",
        [(last + place, event.replace(first, key), kind, moment, asset, key) for place, key in enumerate(keys, 1)],
    )
    database.executemany(
        "INSERT INTO asset_check_executions (asset_key, check_name, partition, run_id, execution_status, "
        "evaluation_event, evaluation_event_timestamp, evaluation_event_storage_id, materialization_event_storage_id) "
        "VALUES (?, ?, ?, '', 'SUCCEEDED', ?, ?, ?, ?)",
        [
            (asset, CHECK_NAME, key, verdict.replace(first, key), moment, last + place, last + place)
            for place, key in enumerate(keys, 1)
        ],
    )
