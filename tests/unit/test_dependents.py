"""What hangs on a wrong partition, by the log (O4): batches are found by the epochs of the deltas in them."""

from pathlib import Path

import pytest

from assets import dependents
from assets.dependents import dependent_partitions
from assets.graph import By, Derived, Need
from assets.ingest.schema import DELTAS
from assets.windows.schema import window_table
from tests.support.entries import LogOf, batch, entry
from tests.support.live import TEN_O_CLOCK
from tests.support.windows import stream
from tidemark.log.manifest import Entry
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.streams import WindowSpec, WindowType

ADAPTIVE = Derived(window_table(stream(WindowSpec(WindowType.ADAPTIVE))), (Need(DELTAS, By.BATCH),))
WRONG, GOOD = TEN_O_CLOCK - 5 * HOUR_US, TEN_O_CLOCK - HOUR_US


def held_by(entries: list[Entry], monkeypatch: pytest.MonkeyPatch, wrong_us: int) -> set[int]:
    monkeypatch.setattr(dependents, "Log", lambda _: LogOf(entries))
    return dependent_partitions(Home(Path("nowhere")), ADAPTIVE, {DELTAS.name: {wrong_us}})


def test_a_batch_that_is_recorded_in_the_entry_after_its_deltas_is_held_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The entry of the wrong hour names a batch of deltas before it, and its own batch stands in the next entry."""
    entries = [
        entry(1, 1, 5, [GOOD]),
        entry(2, 5, 9, [WRONG], batch(1, 1, 5, TEN_O_CLOCK - 2 * HOUR_US)),
        entry(3, 9, 12, [GOOD], batch(2, 5, 9, TEN_O_CLOCK)),
        entry(4, 12, 15, [GOOD], batch(3, 9, 12, TEN_O_CLOCK + HOUR_US)),
    ]
    assert held_by(entries, monkeypatch, WRONG) == {TEN_O_CLOCK}


def test_a_batch_over_a_border_of_segments_hangs_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(1, 1, 5, [WRONG]), entry(2, 5, 9, [GOOD], batch(1, 3, 7, TEN_O_CLOCK))]
    assert held_by(entries, monkeypatch, WRONG) == held_by(entries, monkeypatch, GOOD) == {TEN_O_CLOCK}


def test_epochs_of_another_shard_are_other_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(1, 1, 5, [WRONG]), entry(1, 1, 5, [GOOD], batch(1, 1, 5, TEN_O_CLOCK), shard=1)]
    assert held_by(entries, monkeypatch, WRONG) == set()
