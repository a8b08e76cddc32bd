"""Sending the demo's day: whatever of it is there already is answered, and never taken twice."""

from pathlib import Path

import pyarrow as pa
import pytest

from orchestration.demo.feed import SETTINGS_TEXT, feed
from orchestration.demo.generator import Write, generate
from tidemark.log.manifest import Manifest
from tidemark.log.segments import read_segment
from tidemark.observe.status import read_status
from tidemark.storage.home import Home

DELTAS = 600


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create(SETTINGS_TEXT)


def ignore(write: Write) -> None:
    """Nobody watches."""


def epochs(home: Home) -> list[int]:
    return [shard.applied_epoch for shard in read_status(home)]


def rows(home: Home) -> list[str]:
    """Everything sealed, by place in the log, not by segment; as text, because a planted NaN does not equal itself."""
    tables = [
        read_segment(home.segments(shard) / entry.file)
        for shard in range(home.settings.shards)
        for entry in Manifest(home.segments(shard)).all()
    ]
    order = [("shard", "ascending"), ("epoch", "ascending"), ("ordinal", "ascending")]
    return [repr(row) for row in pa.concat_tables(tables).sort_by(order).to_pylist()]


def test_the_same_day_again_gets_no_new_epoch(home: Home) -> None:
    first = feed(home, generate(seed=1, deltas=DELTAS), ignore)
    before = epochs(home), rows(home)
    again = feed(home, generate(seed=1, deltas=DELTAS), ignore)
    assert (first.deltas, again.writes, again.deltas) == (DELTAS, 0, 0)
    assert again.repeated == first.writes + first.repeated
    assert (epochs(home), rows(home)) == before


def test_a_day_of_another_seed_is_more_data(home: Home) -> None:
    feed(home, generate(seed=1, deltas=DELTAS), ignore)
    before = rows(home)
    assert feed(home, generate(seed=2, deltas=DELTAS), ignore).deltas == DELTAS
    after = rows(home)
    assert len(after) == 2 * DELTAS
    assert set(before) < set(after)


def test_a_day_that_was_interrupted_ends_as_if_it_had_not_been(home: Home, tmp_path: Path) -> None:
    seen: list[Write] = []

    def interrupt(write: Write) -> None:
        seen.append(write)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        feed(home, generate(seed=1, deltas=DELTAS), interrupt)
    feed(home, generate(seed=1, deltas=DELTAS), ignore)
    whole = Home(tmp_path / "whole").create(SETTINGS_TEXT)
    feed(whole, generate(seed=1, deltas=DELTAS), ignore)
    assert len(rows(home)) == DELTAS
    assert rows(home) == rows(whole)
