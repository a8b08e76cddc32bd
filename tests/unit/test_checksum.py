"""A checksum is that of the rows which the table's own reader gives, in whatever files they lie."""

import hashlib
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import types

from tidemark.model.errors import DamageError
from tidemark.tables.lake_files import quiet_database
from tidemark.tables.table_checksums import Checksum, checksum

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
MOMENT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "hour": MOMENT,
        "at": MOMENT,
        "name": pa.string(),
        "raw": pa.binary(),
        "small": pa.int8(),
        "count": pa.int64(),
        "share": pa.float32(),
        "weight": pa.float64(),
        "price": pa.decimal128(12, 2),
        "day": pa.date32(),
        "is_late": pa.bool_(),
        "nested": pa.struct(
            {"values": pa.list_(pa.float32()), "labels": pa.map_(pa.string(), pa.int64()), "inner": pa.string()}
        ),
    }
)


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "hour": TEN + timedelta(hours=number % 3),
        "at": TEN + timedelta(microseconds=number),
        "name": 'ü"' * number + "\n",
        "raw": bytes(range(number)),
        "small": number,
        "count": number << 40,
        "share": number / 3,
        "weight": number / 7,
        "price": Decimal(number) / 4,
        "day": date(2026, 3, 1 + number),
        "is_late": number % 2 == 0,
        "nested": {"values": [number / 3, None], "labels": [("a", number), ("b", None)], "inner": None},
        **changes,
    }


ROWS = [row(number) for number in range(7)]
NOTHING = dict.fromkeys(SCHEMA.names)


def write(path: Path, rows: list[dict[str, Any]], *, schema: pa.Schema = SCHEMA, **options: Any) -> Path:
    table = pa.Table.from_pylist(rows, schema)
    write_deltalake(path, table, mode="append", partition_by=options.pop("by", ["hour"]), **options)
    return path


def by_the_tables_own_reader(path: Path) -> Checksum:
    """The definition, row by row, over what delta-rs reads as Arrow."""
    dataset = DeltaTable(path).to_pyarrow_dataset()
    names = sorted(dataset.schema.names)

    def canonical(name: str) -> str:
        kind = dataset.schema.field(name).type
        if types.is_timestamp(kind):
            return f'epoch_us("{name}")'
        return f'hex("{name}")' if types.is_binary(kind) or types.is_large_binary(kind) else f'"{name}"'

    with duckdb.connect() as database:
        database.register("rows", dataset)
        fields = ", ".join(f'"{name}" := {canonical(name)}' for name in names)
        found = database.execute(f"SELECT to_json(struct_pack({fields}))::VARCHAR FROM rows").fetchall()
    total = sum(int(hashlib.sha256(text.encode()).hexdigest(), 16) for (text,) in found) % (1 << 256)
    summary = json.dumps({"columns": names, "rows": len(found), "sum": f"{total:064x}"})
    return Checksum(len(found), hashlib.sha256(summary.encode()).hexdigest())


@pytest.mark.parametrize(
    "by", [["hour"], ["name"], ["count"], ["day"], ["is_late", "hour"], ["price"], []], ids="+".join
)
def test_it_is_that_of_the_rows_whatever_the_partition(tmp_path: Path, by: list[str]) -> None:
    path = write(tmp_path / "a table", [*ROWS, NOTHING, *ROWS[:2]], by=by)
    found = checksum(path)
    assert found == by_the_tables_own_reader(path)
    assert found.rows == len(ROWS) + 3


def test_order_and_files_do_not_count_and_copies_do(tmp_path: Path) -> None:
    once = checksum(write(tmp_path / "once", ROWS))
    apart = tmp_path / "apart"
    for each in reversed(ROWS):
        write(apart, [each])
    assert checksum(apart) == once
    assert checksum(write(tmp_path / "without a partition", ROWS, by=[])) == once
    assert checksum(write(apart, ROWS[:1])) != once
    assert checksum(apart, DeltaTable(apart).version() - 1) == once


def test_the_partitions_value_counts(tmp_path: Path) -> None:
    values = (TEN, TEN + timedelta(hours=1), None)
    found = {checksum(write(tmp_path / str(number), [row(1, hour=hour)])) for number, hour in enumerate(values)}
    assert len(found) == len(values)


def test_a_column_that_came_later_is_null_in_the_files_before(tmp_path: Path) -> None:
    early = pa.schema([field for field in SCHEMA if field.name not in {"at", "raw", "nested"}])
    path = write(tmp_path / "table", [{**NOTHING, "hour": TEN, "name": "early"}], schema=early)
    write(path, ROWS, schema_mode="merge")
    assert checksum(path) == by_the_tables_own_reader(path)
    # In no file that is left: only the schema still knows it.
    DeltaTable(path).delete("count > 0 OR weight >= 0")
    assert checksum(path) == by_the_tables_own_reader(path)
    assert checksum(path).rows == 1


def test_a_table_without_rows_has_a_checksum(tmp_path: Path) -> None:
    path = write(tmp_path / "table", [])
    assert checksum(path) == by_the_tables_own_reader(path)
    write(path, ROWS)
    DeltaTable(path).delete()
    assert checksum(path).rows == 0
    assert checksum(path) == by_the_tables_own_reader(path)


def test_the_machines_time_zone_does_not_count(tmp_path: Path) -> None:
    path = write(tmp_path / "table", ROWS)
    with quiet_database() as database:
        database.execute("SET TimeZone = 'America/New_York'")
        assert checksum(path, database=database) == checksum(path)


def test_a_table_whose_files_are_not_its_rows_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "table", ROWS)
    log = path / "_delta_log" / "00000000000000000000.json"
    protocol = '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],'
    lines = [line for line in log.read_text().splitlines() if '"protocol"' not in line]
    log.write_text("\n".join([protocol + '"writerFeatures":["deletionVectors"]}}', *lines]))
    with pytest.raises(DamageError, match="deletionVectors"):
        checksum(path)


def test_where_no_table_is_there_is_no_checksum(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="There is no table"):
        checksum(tmp_path / "nowhere")
