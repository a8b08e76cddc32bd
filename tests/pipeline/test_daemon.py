"""The real thing (O3): what is sent while the daemon runs reaches every table in minutes, and nothing else moves."""

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from orchestration.instance import open_instance
from tests.support.batch import FORGETFUL, rows_of, send
from tests.support.every_kind import SETTINGS, empty_tables, tables_of, writes_of_every_kind
from tests.support.live import signal
from tests.support.running import (
    Ui,
    changes,
    failed_runs,
    materialized,
    not_proven,
    tidemark,
    wait_until,
    wait_until_quiet,
)
from tests.support.windows import every_example
from tidemark.log.manifest import Manifest
from tidemark.model.timegrid import DAY, HOUR, HOUR_US, MINUTE, MONTH, WEEK, WEEK_US, floor_to, from_us, hour_key
from tidemark.storage.home import Home

pytestmark = pytest.mark.slow

FOLLOWED_LIMIT_S = 360.0
# Some forty steps, each with its suite; and all windows of the hour are asked for at the next tenth minute.
EVERY_TABLE_LIMIT_S = 1_800.0


def now() -> int:
    return time.time_ns() // 1_000


def write_file(path: Path, deltas: list[dict[str, Any]]) -> Path:
    """As a producer would write it: times as text."""
    told = [{**delta, "event_ts": from_us(delta["event_ts"]).isoformat()} for delta in deltas]
    path.write_text("".join(f"{json.dumps(delta)}\n" for delta in told))
    return path


def sums(deltas: list[dict[str, Any]], bucket_of: Callable[[int], int]) -> Counter[datetime]:
    """Bucket → sum of counts, as anybody would add them up."""
    found: Counter[datetime] = Counter()
    for delta in deltas:
        found[from_us(bucket_of(delta["event_ts"]))] += delta["signal"]["count"]
    return found


def table_sums(home: Home, table: str) -> Counter[datetime]:
    found: Counter[datetime] = Counter()
    for bucket, count in rows_of(home, table, "bucket_start", "count"):
        found[bucket] += count
    return found


def test_what_is_sent_reaches_every_table_and_touches_nothing_else(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    home, start = Home(tmp_path / "home").create(FORGETFUL), now()
    three_weeks = floor_to(start - 3 * WEEK_US, HOUR_US)
    # Hours that will be touched again, their neighbours, and a week that will be left alone.
    hours = [*(start - back * HOUR_US for back in (2, 3, 4)), three_weeks - HOUR_US, start - 2 * WEEK_US]
    first = [signal(f"first-{hour}-{at}", at=hour + at, count=2) for hour in hours for at in range(5)]
    send(home, first, clock=now)
    tidemark(home, "drain")
    late = [signal(f"late-{at}", at=three_weeks + at, count=7) for at in range(2)]
    fresh = [signal(f"fresh-{at}", at=start - back * HOUR_US, count=3) for at, back in enumerate((0, 0, 3))]
    touched_hours = {hour_key(delta["event_ts"]) for delta in late + fresh}
    touched = {
        **dict.fromkeys(("deltas", "minute_counts", "hourly_counts"), touched_hours),
        "daily_counts": {DAY.key(delta["event_ts"]) for delta in late + fresh},
        "weekly_counts": {WEEK.key(delta["event_ts"]) for delta in late + fresh},
        "monthly_counts": {MONTH.key(delta["event_ts"]) for delta in late + fresh},
    }
    with open_instance(home) as instance, Ui(home):
        wait_until_quiet(instance, limit_s=FOLLOWED_LIMIT_S)
        before, sent_at = materialized(instance), time.monotonic()
        assert tidemark(home, "send", str(write_file(tmp_path / "deltas.jsonl", late + fresh)))["accepted"] == 5
        # Of the hours of receipt it is reported that nothing was refused in them.
        touched["dead_letters"] = set(list(Manifest(home.segments(0)).all())[-1].receipt_hours)
        wait_until(
            "every touched partition is materialized and proven",
            lambda: (changes(before, materialized(instance)), not_proven(instance, touched)),
            lambda seen: all(seen[0][table] >= keys for table, keys in touched.items()) and not seen[1],
            limit_s=FOLLOWED_LIMIT_S,
        )
        took_s = time.monotonic() - sent_at
        wait_until_quiet(instance, limit_s=FOLLOWED_LIMIT_S)
        changed = {table: keys for table, keys in changes(before, materialized(instance)).items() if keys}
        assert changed == touched
        assert not_proven(instance, touched) == {}
    record_property("seconds from send to the last proven partition", round(took_s, 1))
    print(f"From send to the last proven partition: {took_s:.1f} s")  # noqa: T201
    everything = first + late + fresh
    assert len(rows_of(home, "deltas", "delta_id")) == len(everything)
    for tier, grain in (("minute", MINUTE), ("hourly", HOUR), ("daily", DAY), ("weekly", WEEK), ("monthly", MONTH)):
        assert table_sums(home, f"{tier}_counts") == sums(everything, grain.floor), tier
    assert tidemark(home, "account")["disagreements"] == []


def test_one_delta_of_each_kind_reaches_every_table_of_every_example(tmp_path: Path) -> None:
    """The demo's streams among them: before, the daemon failed at those that have no mean, every ten minutes."""
    home, examples = Home(tmp_path / "home").create(SETTINGS), every_example(tmp_path / "streams")
    tables = tables_of(examples)
    with open_instance(home) as instance, Ui(home, TIDEMARK_STREAMS=str(examples)):
        for write in writes_of_every_kind(HOUR.floor(now()) - 5 * HOUR_US):
            send(home, write, clock=now)
            # A watermark moves by the second (T2); within one, the last minute passed would come before every signal.
            time.sleep(1.1)
        wait_until(
            "every table has rows, and no run has failed",
            lambda: (empty_tables(home, tables), failed_runs(instance)),
            lambda seen: not seen[0] or seen[1],
            limit_s=EVERY_TABLE_LIMIT_S,
        )
        assert failed_runs(instance) == []
        wait_until_quiet(instance, limit_s=EVERY_TABLE_LIMIT_S)
        assert failed_runs(instance) == []
        made = materialized(instance, tables)
        assert not_proven(instance, made) == {}
    assert empty_tables(home, tables) == []
    assert tidemark(home, "account")["disagreements"] == []
