"""Compaction beside a producer that never stops: no append fails, and no read of the past changes (K2, K4, K5, K6)."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from orchestration.compact import Wanted, compact
from orchestration.materialize import drain
from orchestration.vectors import materialize_vectors
from tests.support.live import TEN_O_CLOCK, HandClock, open_platform, vector
from tests.support.vector_oracle import Delta, payload, said, table_of
from tidemark import Platform
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US
from tidemark.storage.home import HOME_VARIABLE, Home
from tidemark.tables import lake_files
from tidemark.vectors.chain import state_of
from tidemark.vectors.checkpoints import Strategy
from tidemark.vectors.reading.reader import Vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDS = [f"v{number}" for number in range(12)]
BEFORE, AT_ONCE = 600, 20
# What happened until then is settled before the first compaction; the horizon of the last one lies in between.
THEN = TEN_O_CLOCK + 10 * HOUR_US
CUT = TEN_O_CLOCK + 5 * HOUR_US
NOW = THEN + DAY_US


def edits(random: Random, count: int, first_us: int, last_us: int, prefix: str) -> list[dict[str, Any]]:
    """Any operations on any of the vectors, in the order of their times."""
    times = sorted(random.randint(first_us, last_us) for _ in range(count))
    return [
        vector(f"{prefix}-{number}", **payload(random), at=at, vector_id=random.choice(IDS))
        for number, at in enumerate(times)
    ]


@contextmanager
def ingest(platform: Platform) -> Iterator[list[str]]:
    """A producer that goes on until the end; gives the ids that it was told are safe."""
    told: list[str] = []
    is_over = threading.Event()

    def write() -> None:
        random, producer, number = Random(2), platform.producer("live"), 0
        while not is_over.wait(0.05):
            given = edits(random, AT_ONCE, THEN + 1, NOW, f"live-{number}")
            producer.write(given).wait()
            told.extend(delta["delta_id"] for delta in given)
            number += 1

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        try:
            yield told
        finally:
            is_over.set()
            done.result()  # raises what an append has raised


def cut_and_seal(platform: Platform, cut_us: int) -> None:
    """What a program does that has the home open: nothing goes before what came until the cut is in the tables."""
    platform.cut_vectors(cut_us)
    platform.seal()


def read(home: Home, moments: Sequence[int]) -> dict[tuple[str, int], Any]:
    with Vectors(home, counts_reads=False) as vectors:
        found = {(each, at): vectors.vector(each, namespace="shop", as_of=at) for each in IDS for at in moments}
    return {
        key: (answer.status, answer.values if answer.values is None else answer.values.tobytes(), answer.metadata)
        for key, answer in found.items()
    }


def drained(home: Home) -> set[str]:
    table = lake_files.open_table(home.lake / "deltas")
    assert table is not None
    return set(table.to_pyarrow_table(columns=["delta_id"])["delta_id"].to_pylist())


@pytest.mark.slow
def test_every_strategy_and_the_removal_run_beside_ingest_without_a_failed_append_or_a_changed_read(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, "unset")
    home, clock, random = Home(tmp_path / "home").create(), HandClock(CUT - 1), Random(1)
    settled = edits(random, BEFORE, TEN_O_CLOCK, THEN, "old")
    moments = [CUT + step * 17 * MINUTE_US for step in range(0, 18, 3)]
    with open_platform(home, clock) as platform:
        # What goes must have happened and have arrived before the cut (K5).
        early = [delta for delta in settled if delta["event_ts"] < CUT]
        platform.producer("old").write(early).wait()
        clock.now_us = NOW
        platform.producer("old").write(settled[len(early) :]).wait()
        platform.seal()
        assert drain(home).succeeded
        assert materialize_vectors(home).succeeded
        before = read(home, moments)
        assert_folded_by_hand(before, settled)
        sizes: list[tuple[int, int]] = []
        with ingest(platform) as told:
            for strategy in Strategy:
                platform.seal()
                assert drain(home).succeeded
                done = compact(home, Wanted(strategy, is_forced=True), clock=clock)
                assert done.is_done
                assert done.compacted.checkpoints, "there was something to compact each time"
                sizes.append((done.compacted.bytes_before, done.compacted.bytes_after))
                assert read(home, moments) == before
            removing = Wanted(Strategy.FULL_MERGE, horizon_us=NOW - CUT, is_forced=True, is_removing=True)
            done = compact(home, removing, clock=clock, cut=lambda cut_us: cut_and_seal(platform, cut_us))
            assert done.is_done
            assert done.removed.payloads
            assert read(home, moments) == before
        platform.seal()
    assert all(after > 0 for _, after in sizes)
    assert drain(home).succeeded
    assert drained(home) >= {delta["delta_id"] for delta in settled} | set(told)
    assert len(told) > AT_ONCE * 10
    assert materialize_vectors(home).succeeded
    assert read(home, moments) == before


def assert_folded_by_hand(found: dict[tuple[str, int], Any], sent: list[dict[str, Any]]) -> None:
    """What was read is what the core says of what was sent."""
    unsaid: Delta = {"namespace": "shop", "parent_id": None, "metadata": None, "clock": None, "shard": 0, "epoch": 1}
    for (vector_id, at), (_, values, _) in found.items():
        own = [
            {
                **unsaid,
                **delta["vector"],
                "event_us": delta["event_ts"],
                "delta_id": delta["delta_id"],
                "origin": "old",
                "ordinal": place,
            }
            for place, delta in enumerate(sent)
            if delta["vector"]["vector_id"] == vector_id
        ]
        [state] = said(state_of(table_of(own), as_of_us=at)) or [{"values": None}]
        assert values == state["values"]
