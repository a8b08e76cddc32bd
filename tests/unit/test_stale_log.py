"""What the log has for each hour is read once in a process, and then only what was committed since (O3)."""

import shutil
from pathlib import Path

import dagster as dg
import msgspec
import pytest

from assets import stale
from assets.graph import By, Need
from assets.ingest.schema import DELTAS
from tests.support.entries import next_entry
from tests.support.live import TEN_O_CLOCK
from tidemark.log.manifest import HourCounts, Manifest, SourceHours
from tidemark.model.timegrid import HOUR_US, hour_key
from tidemark.observe.log_index import ANY_SOURCE, index_of
from tidemark.observe.sealed_log import Log
from tidemark.storage.home import Home

DAY_US = 24 * HOUR_US


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Everything that is sealed counts as committed."""
    home = Home(tmp_path / "home").create()
    home.segments(0).mkdir(parents=True)
    monkeypatch.setattr(stale, "durable_epochs", lambda home: {0: Manifest(home.segments(0)).to_epoch - 1})
    return home


def seal(home: Home, at_us: int) -> None:
    manifest = Manifest(home.segments(0))
    hours = {hour_key(at_us): HourCounts(accepted=1)}
    entry = next_entry(manifest, sealed_us=at_us)
    sha256 = f"{at_us:064d}"
    manifest.append(msgspec.structs.replace(entry, receipt_hours=hours, sha256=sha256))


def received(home: Home) -> dict[tuple[int, int], int]:
    log = Log(home)
    epochs = index_of(home, log, log.sealed).last[By.RECEIPT]
    return {(hour, shard): epoch for (hour, shard, source), epoch in epochs.items() if source == ANY_SOURCE}


def test_what_was_read_is_not_read_again_and_what_came_since_is_added(home: Home) -> None:
    seal(home, TEN_O_CLOCK)
    seal(home, TEN_O_CLOCK)
    seal(home, TEN_O_CLOCK + DAY_US)
    assert received(home) == {(TEN_O_CLOCK, 0): 2, (TEN_O_CLOCK + DAY_US, 0): 3}
    min(home.segments(0).glob("manifest-*")).write_text("nobody reads this again\n")
    seal(home, TEN_O_CLOCK + DAY_US)
    seal(home, TEN_O_CLOCK + 2 * DAY_US)
    assert received(home) == {
        (TEN_O_CLOCK, 0): 2,
        (TEN_O_CLOCK + DAY_US, 0): 4,
        (TEN_O_CLOCK + 2 * DAY_US, 0): 5,
    }


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_another_log_in_the_same_place_is_read_from_its_beginning(home: Home, segments: int) -> None:
    for _ in range(2):
        seal(home, TEN_O_CLOCK)
    assert received(home) == {(TEN_O_CLOCK, 0): 2}
    shutil.rmtree(home.segments(0))
    home.segments(0).mkdir()
    for _ in range(segments):
        seal(home, TEN_O_CLOCK + HOUR_US)
    assert received(home) == {(TEN_O_CLOCK + HOUR_US, 0): segments}


def test_the_log_tells_namespaces_and_kinds_apart_and_older_lines_count_for_all(home: Home) -> None:
    manifest = Manifest(home.segments(0))
    hours = {hour_key(TEN_O_CLOCK): HourCounts(accepted=1)}
    shop = {"shop/signal": SourceHours(receipt=[hour_key(TEN_O_CLOCK)], event=[hour_key(TEN_O_CLOCK - DAY_US)])}
    for sources in (None, shop):
        entry = next_entry(manifest, sealed_us=TEN_O_CLOCK)
        manifest.append(
            msgspec.structs.replace(entry, receipt_hours=hours, sources=sources, sha256=f"{entry.number:064d}")
        )
    with dg.DagsterInstance.ephemeral() as instance:
        found = stale._Found(instance, home, {})
        for source, epoch in (("shop/signal", 2), ("shop/vector", 1), (None, 2)):
            assert found.committed(Need(DELTAS, By.RECEIPT, source=source)) == {(TEN_O_CLOCK, 0): epoch}
