"""`kill -9` of the process that holds the warm tier: started again it equals the tables (R3, C7)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assets.ingest.drain import drain
from resources.lake import Lake
from tests.support.counting import Event, count_of
from tests.support.live import TEN_O_CLOCK, HandClock, open_platform
from tidemark.counts.lake import LakeCounts
from tidemark.counts.warm.follower import Follower, snapshot_path
from tidemark.counts.windows import Window
from tidemark.storage.home import Home

ENTITIES = [f"item-{number}" for number in range(5)]
SMALL = 1 << 10
# Counts what it writes, leaves snapshots all the time, and goes on until it is killed.
WRITER = """
import sys
from itertools import count
from pathlib import Path
from random import Random
from tidemark.counts.warm.follower import Follower
from tidemark.storage.home import Home
from tidemark.model.timegrid import DAY_US, HOUR_US
from tests.support.live import TEN_O_CLOCK, HandClock, open_platform, signal

home, life, clock = Home(Path(sys.argv[1])), sys.argv[2], HandClock()
random = Random(life)
with open_platform(home, clock) as platform, Follower(platform, home, clock=clock, capacity=1 << 10) as follower:
    producer = platform.producer("web")
    for number in count():
        ages = [random.randrange(2 * HOUR_US), random.randrange(8 * DAY_US), random.randrange(40) * DAY_US]
        producer.write(
            [
                signal(f"{life}-{number}-{at}", at=TEN_O_CLOCK - age, entity=f"item-{random.randrange(5)}")
                for at, age in enumerate(ages)
            ]
        ).wait()
        if number % 3 == 0:
            follower.save()
        if number % 7 == 0:
            platform.seal()
        print(number, flush=True)
"""


def live_until_killed(home: Home, life: int, writes: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home.root), str(life)], env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(writes):
        assert process.stdout.readline()
    process.kill()
    process.stdout.close()
    assert process.wait() < 0


@pytest.mark.slow  # three processes and their drains; what they share is in tests/pipeline/test_warm_tier.py
def test_r3_killed_at_any_moment_and_started_again_the_warm_tier_equals_the_log_and_the_tables(
    tiny_home: Home, lake: Lake
) -> None:
    clock = HandClock()
    for life, writes in enumerate((1, 8, 25)):
        live_until_killed(tiny_home, life, writes)
        if life == 1:
            drain(lake)  # of what recovery and the process have sealed
    assert snapshot_path(tiny_home).exists()
    with (
        open_platform(tiny_home, clock) as platform,
        Follower(platform, tiny_home, clock=clock, capacity=SMALL, look_seconds=3600) as follower,
    ):
        rows = platform.shards[0].snapshot().read().select(["event_ts", "signal", "verdict"]).to_pylist()
        events = [
            Event(row["signal"]["entity_id"], "view", int(row["event_ts"].timestamp()) * 10**6, row["signal"]["count"])
            for row in rows
            if row["verdict"] == "accepted"
        ]
        assert len(events) >= 3 * (1 + 8 + 25)
        for window in Window:
            found = follower.counters.count_many("shop", "view", ENTITIES, window).tolist()
            assert found == [count_of(events, entity, "view", window, TEN_O_CLOCK) for entity in ENTITIES]
        platform.seal()
        drain(lake)
        follower.look()
        assert follower.counters.covered == follower.counters.applied
        tables = LakeCounts(tiny_home)
        for entity in ENTITIES:
            expected = tables.windows(entity, "view", TEN_O_CLOCK, namespace="shop").windows
            for window in Window:
                assert follower.counters.count("shop", entity, "view", window) == expected[window].count
