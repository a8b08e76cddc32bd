"""A compaction gives way to the drain that somebody waits for who has just opened the pages, and later to none."""

import time
from pathlib import Path

import dagster as dg
import pytest

from orchestration.compact_sensor import GIVES_WAY_S, compact_when_due
from orchestration.instance import open_instance
from tests.support.batch import send
from tests.support.live import signal
from tidemark.storage.home import Home
from tidemark.tables import lake_files


def skipped_because(home: Home, monkeypatch: pytest.MonkeyPatch, *, age_s: float) -> str | None:
    """What the sensor says, so long after it was started, of a home that has vectors of which none is due."""
    monkeypatch.setattr(lake_files, "readable_state", Path)
    with open_instance(home) as instance:
        context = dg.build_sensor_context(instance, last_sensor_start_time=time.time() - age_s)
        return compact_when_due.evaluate_tick(context).skip_message


def test_a_compaction_waits_at_first_until_everything_that_is_sealed_is_drained(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(home, [signal("d1")])
    assert skipped_because(home, monkeypatch, age_s=1.0) == "What was sent is drained first."


def test_it_waits_no_longer_where_deltas_never_stop(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    send(home, [signal("d1")])
    assert skipped_because(home, monkeypatch, age_s=GIVES_WAY_S + 1) == "No vector is due."


def test_it_does_not_wait_when_nothing_is_to_be_drained(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert skipped_because(home, monkeypatch, age_s=1.0) == "No vector is due."
