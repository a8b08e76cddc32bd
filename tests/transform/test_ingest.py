"""Which row of the log becomes what (Q3): the narrow pass, the second look, and the rows of both tables."""

import itertools
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.ingest import prefilter as sift_module
from assets.ingest.duplicates import find_duplicates
from assets.ingest.prefilter import Segment, prefilter, repeated_hashes
from assets.ingest.schema import DELTAS, IDENTITY, LOG_DDL
from assets.ingest.transform import accepted_deltas, dead_letters, without_copies
from benchmarks.segments import seal
from tidemark.model.log_schema import LOG_SCHEMA, RAW_LIMIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Letters = Callable[..., list[dict[str, Any]]]
Place = tuple[str, int, int]

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def log_row(
    epoch: int, ordinal: int, name: str, *, content: int = 0, verdict: str = "accepted", **more: Any
) -> dict[str, Any]:
    """A row of the log: a signal, or a refused delta without a readable envelope."""
    row: dict[str, Any] = {
        "shard": 0,
        "epoch": epoch,
        "ordinal": ordinal,
        "producer": "checkout",
        "sequence": epoch,
        "received_ts": NOON + timedelta(minutes=epoch),
        "namespace": "shop",
        "kind": "signal",
        "key": "item",
        "delta_id": name,
        "event_ts": NOON,
        "identity_hash": len(name),  # a poor hash on purpose: collisions must not matter
        "content_hash": content,
        "verdict": verdict,
        "signal": {"entity_id": "item", "signal": "view", "count": 1 + content, "weight_millionths": 0},
    }
    if verdict == "refused":
        row |= {"reason": "malformed", "detail": "not JSON", "raw": b"{", "raw_bytes": 1, "signal": None}
    return row | more


def place(row: dict[str, Any]) -> Place:
    return row["namespace"], row["epoch"], row["ordinal"]


def segment(directory: Path, rows: list[dict[str, Any]]) -> Segment:
    entry = seal(directory, pa.Table.from_pylist(rows, schema=LOG_SCHEMA), sealed_us=0)
    return Segment(entry, directory / entry.file)


@pytest.fixture
def letters(spark: "SparkSession", tmp_path: Path) -> Letters:
    """Dead letters of a segment of these rows, with `known` rows in the table."""
    calls = itertools.count()

    def letters(rows: list[dict[str, Any]], known: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        directory = tmp_path / str(next(calls))
        directory.mkdir()
        files = []
        if known:
            files = [str(directory / "known.parquet")]
            pq.write_table(pa.Table.from_pylist(known, schema=LOG_SCHEMA), files[0])
        aside = prefilter([segment(directory, rows)], known_files=files, target=directory / "aside.parquet")
        found = [row.asDict() for row in find_duplicates(spark, aside, known_files=files).letters.collect()]
        return sorted(found, key=lambda row: (row["epoch"], row["ordinal"]))

    return letters


def test_hashes_that_collide_are_no_copies(letters: Letters) -> None:
    found = letters([log_row(1, 0, "a"), log_row(1, 1, "b"), log_row(2, 0, "a")])
    assert [(row["epoch"], row["ordinal"], row["reason"]) for row in found] == [(2, 0, "duplicate")]
    assert found[0]["detail"] == "a copy of the delta at epoch 1, ordinal 0"


def test_the_row_in_the_table_is_the_first(letters: Letters) -> None:
    """Also when it is one of several, and when only the content differs."""
    found = letters([log_row(5, 0, "a", content=1), log_row(5, 1, "a")], [log_row(2, 3, "a")])
    assert [(row["ordinal"], row["reason"]) for row in found] == [(0, "id_reuse"), (1, "duplicate")]
    assert {row["detail"][-22:] for row in found} == {" at epoch 2, ordinal 3"}


def test_what_the_log_knew_as_duplicate_is_in_neither_table(letters: Letters) -> None:
    rows = [log_row(1, 0, "a"), log_row(1, 1, "a", verdict="duplicate"), log_row(1, 2, "?", verdict="refused")]
    found = letters(rows)
    assert [(row["ordinal"], row["verdict"], row["raw"]) for row in found] == [(2, "refused", b"{")]


def test_a_copy_shows_its_payload_up_to_a_limit(letters: Letters) -> None:
    wide = {"vector_id": "item", "op": "create", "values": [0.5] * RAW_LIMIT}
    rows = [log_row(epoch, 0, "v", kind="vector", signal=None, vector=wide) for epoch in (1, 2)]
    (found,) = letters(rows)
    assert found["raw"].startswith(b'{"vector_id":"item","op":"create","values":[0.5,')
    assert (len(found["raw"]), found["raw_bytes"] > RAW_LIMIT) == (RAW_LIMIT, True)


def test_nothing_set_aside_is_no_file(spark: "SparkSession", tmp_path: Path) -> None:
    aside = prefilter([segment(tmp_path, [log_row(1, 0, "a")])], known_files=(), target=tmp_path / "aside.parquet")
    assert (aside.file, aside.suspects) == (None, 0)
    assert find_duplicates(spark, aside, known_files=()).letters.isEmpty()


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_repeated_hashes_are_found_in_any_number_of_passes(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sift_module, "HASHES_AT_ONCE", at_once)
    values = [3, -9, 4, 3, 2**62, -(2**63), 4, 3, 11]
    rows = [log_row(1, ordinal, "x", identity_hash=value) for ordinal, value in enumerate(values)]
    known = tmp_path / "known.parquet"
    pq.write_table(pa.table({"identity_hash": pa.array([11, 12, None, -9], pa.int64())}), known)
    found = repeated_hashes([segment(tmp_path, rows)], [str(known)])
    assert found.tolist() == [-9, 3, 4, 11]
    assert found.dtype == np.int64


def random_log(random: Random, namespace: str) -> list[dict[str, Any]]:
    """A few writes of a few deltas with few names, so that copies, reused ids and colliding hashes abound."""
    verdicts = ["accepted", "accepted", "duplicate", "refused"]
    return [
        log_row(
            epoch,
            ordinal,
            random.choice(["a", "b", "cc", "dd"]),
            content=random.randint(0, 1),
            verdict=random.choice(verdicts),
            namespace=namespace,
        )
        for epoch in range(1, random.randint(1, 6) + 1)
        for ordinal in range(random.randint(1, 4))
    ]


def judged_by_hand(rows: list[dict[str, Any]]) -> dict[Place, str]:
    """Reason of every dead letter, by comparing every delta with all before it."""
    firsts: dict[tuple[Any, ...], dict[str, Any]] = {}
    expected: dict[Place, str] = {}
    for row in rows:
        if row["verdict"] == "refused":
            expected[place(row)] = "malformed"
        elif row["verdict"] == "accepted":
            first = firsts.setdefault(tuple(row[name] for name in IDENTITY), row)
            if first is not row:
                is_same = first["content_hash"] == row["content_hash"]
                expected[place(row)] = "duplicate" if is_same else "id_reuse"
    return expected


def test_the_first_of_each_identity_wins_wherever_the_log_is_cut(letters: Letters) -> None:
    """Against brute force, 500 logs at once (each in its own namespace), each cut somewhere between two drains."""
    random = Random(7)
    expected: dict[Place, str] = {}
    parts: tuple[list[dict[str, Any]], list[dict[str, Any]]] = [], []
    for number in range(500):
        rows = random_log(random, f"n{number}")
        expected |= judged_by_hand(rows)
        cut = random.randint(0, 6)
        for row in rows:
            parts[row["epoch"] > cut].append(row)
    found = {place(row): row["reason"] for row in letters(parts[0])}
    table = [row for row in parts[0] if row["verdict"] == "accepted" and place(row) not in found]
    found |= {place(row): row["reason"] for row in letters(parts[1], table)}
    assert found == expected
    assert set(expected.values()) == {"malformed", "duplicate", "id_reuse"}


def test_rows_become_deltas_and_letters_in_their_hours(spark: "SparkSession", tmp_path: Path) -> None:
    late = NOON - timedelta(hours=3, microseconds=1)
    rows = [
        log_row(1, 0, "a", event_ts=late),
        log_row(1, 1, "b", verdict="duplicate"),
        log_row(70, 2, "c", verdict="refused", event_ts=None),
        log_row(2, 0, "a", event_ts=late),
    ]
    path = segment(tmp_path, rows).path
    log = spark.read.schema(LOG_DDL).parquet(str(path))
    copies = log.where("epoch = 2")
    deltas = without_copies(accepted_deltas(log), copies)
    assert deltas.columns == DELTAS.names
    hours = deltas.selectExpr("epoch", "CAST(event_hour AS string)").collect()
    assert [tuple(row) for row in hours] == [(1, "2026-03-02 08:00:00")]
    refused = (
        dead_letters(log.where("verdict = 'refused'"), log.limit(0))
        .selectExpr("CAST(received_hour AS string)")
        .collect()
    )
    assert [tuple(row) for row in refused] == [("2026-03-02 13:00:00",)]


def test_the_account_of_a_segment_is_complete(letters: Letters) -> None:
    """Every row is accepted and kept, accepted and a copy, known as duplicate, or refused: nothing is lost."""
    rows = [log_row(epoch, 0, "ab"[epoch % 2], content=epoch % 3) for epoch in range(1, 9)]
    reasons: dict[str, int] = defaultdict(int)
    for row in letters(rows):
        reasons[row["reason"]] += 1
    assert (sum(reasons.values()), set(reasons)) == (6, {"duplicate", "id_reuse"})
