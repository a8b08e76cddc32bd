"""Which deltas of vectors lose their payload, and that nothing else can tell (K5)."""

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assets.ingest.removal import GOES, HAPPENED_SINCE, IN_NO_BASE, RECEIVED_SINCE, with_fate, without_payloads
from assets.ingest.schema import DELTAS
from assets.vectors.schema import VECTOR_CHECKPOINTS
from assets.windows.view import view_of
from resources.session import frame_of
from tests.support.vector_oracle import payload
from tidemark.model.deltas import Kind
from tidemark.model.timegrid import HOUR_US, floor_to
from tidemark.streams import Aggregate, Function, Stream, WindowSpec, WindowType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
BASE = ("namespace", "vector_id", "cut_ts", "kept")
PLACE = ("shard", "epoch", "ordinal")
# The log's; bases may have earlier ones.
CUT = 6 * HOUR_US


def frame(spark: "SparkSession", rows: list[Row], names: tuple[str, ...], columns: Any) -> "DataFrame":
    kinds = {column.name: column.type for column in columns}
    is_time = {name: pa.types.is_timestamp(kinds[name]) for name in names}
    arrays = {
        name: pa.array([row.get(name) for row in rows], pa.int64() if is_time[name] else kinds[name]) for name in names
    }
    return frame_of(spark, pa.table({name: array.cast(kinds[name]) for name, array in arrays.items()}))


def some_deltas(random: Random, count: int) -> list[Row]:
    """Deltas of three vectors in two namespaces around hour 5, and signals under the same keys."""
    rows = []
    for number in range(count):
        event_us, key = random.randrange(3 * HOUR_US, 7 * HOUR_US), random.choice("uvw")
        row: Row = {
            **dict.fromkeys(("identity_hash", "content_hash"), 0),
            "shard": 0,
            "epoch": number // 3 + 1,
            "ordinal": number % 3,
            "namespace": random.choice(("a", "b")),
            "kind": "vector",
            "key": key,
            "delta_id": f"d{number}",
            "event_ts": event_us,
            "received_ts": event_us + random.choice((0, HOUR_US)),
            "event_hour": floor_to(event_us, HOUR_US),
            "vector": {
                "vector_id": key,
                "parent_id": random.choice((None, "d0")),
                "clock": {"p": 1},
                "metadata": random.choice((None, {}, {"k": "word", "l": None})),
                **payload(random),
            },
        }
        if number % 5 == 0:
            row |= {"kind": "signal", "vector": None, "signal": {"entity_id": key, "signal": "view", "count": 1}}
        rows.append(row)
    return rows


def is_to_go(row: Row, bases: list[Row]) -> bool:
    """K5, word for word."""
    place = {name: row[name] for name in PLACE}
    return row["kind"] == "vector" and any(
        (base["namespace"], base["vector_id"]) == (row["namespace"], row["key"])
        and row["event_ts"] < base["cut_ts"]
        and row["received_ts"] < base["cut_ts"]
        and place not in (base["kept"] or [])
        for base in bases
    )


def why_it_stays(row: Row) -> str:
    if row["event_ts"] >= CUT:
        return HAPPENED_SINCE
    return RECEIVED_SINCE if row["received_ts"] >= CUT else IN_NO_BASE


def weight(vector: Row) -> int:
    words = [word for pair in (vector["metadata"] or {}).items() for word in pair if word]
    return 4 * len(vector.get("values") or []) + 4 * len(vector.get("indices") or []) + sum(map(len, words))


def read(rows: "DataFrame") -> dict[tuple[int, ...], Row]:
    return {tuple(row[name] for name in PLACE): row.asDict(recursive=True) for row in rows.collect()}


def test_k5_exactly_what_a_base_holds_loses_its_payload_and_keeps_its_envelope(spark: "SparkSession") -> None:
    given = some_deltas(Random(5), 300)
    own = [row for row in given if (row["namespace"], row["key"]) == ("a", "u") and row["event_ts"] < 4 * HOUR_US]
    kept = [{name: row[name] for name in PLACE} for row in own[::3]]
    bases = [
        {"namespace": "a", "vector_id": "u", "cut_ts": 5 * HOUR_US, "kept": kept},
        {"namespace": "a", "vector_id": "v", "cut_ts": 4 * HOUR_US, "kept": None},
        {"namespace": "b", "vector_id": "u", "cut_ts": 6 * HOUR_US, "kept": []},
    ]
    deltas = frame(spark, given, tuple(DELTAS.names), DELTAS.columns)
    held = frame(spark, bases, BASE, VECTOR_CHECKPOINTS.columns)
    before, after = read(deltas), read(deltas.transform(without_payloads, held))
    going = {tuple(row[name] for name in PLACE): row["vector"] for row in given if is_to_go(row, bases)}
    assert 30 < len(going) < 90
    fates = read(deltas.transform(with_fate, held, CUT))
    there = {tuple(row[name] for name in PLACE): row for row in given if row["kind"] == "vector"}
    assert {place: row["fate"] for place, row in fates.items()} == {
        place: GOES if place in going else why_it_stays(row) for place, row in there.items()
    }
    assert {row["fate"] for row in fates.values()} == {GOES, HAPPENED_SINCE, RECEIVED_SINCE, IN_NO_BASE}
    for place, row in before.items():
        if place in going:
            row["vector"] |= {"values": None, "indices": None, "metadata": None}
            row["removed_bytes"] = weight(going[place])
    assert after == before

    left = deltas.transform(without_payloads, held)
    assert read(left.transform(without_payloads, held)) == after, "once more, as a rebuild does, changes nothing"
    assert GOES not in {row["fate"] for row in read(left.transform(with_fate, held, CUT)).values()}

    aggregates = (Aggregate("sum_factor", Function.SUM, "factor"), Aggregate("min_amount", Function.MIN, "amount"))
    stream = Stream(
        name="edits",
        namespace="a",
        kind=Kind.VECTOR,
        key=("vector_id",),
        window=WindowSpec(WindowType.TUMBLING, HOUR_US, HOUR_US),
        aggregates=aggregates,
    )
    assert read(view_of(left, stream)) == read(view_of(deltas, stream)), "windows cannot tell (O2)"
