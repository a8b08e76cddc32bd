"""The pause before something that has died is started again: longer each time, but never long for what has lasted."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from orchestration import pause
from orchestration.pause import LASTED_S, LONGEST_S, PAUSE_S, Pause

LOOK_S = 0.5
DAY_S = 86_400.0


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which the test moves."""
    now = [1_000_000.0]
    monkeypatch.setattr(pause, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def starts(now_s: list[float], lives_s: Callable[[int], float]) -> Iterator[float]:
    """How long it was dead before each start, if its lives last so long."""
    between = Pause()
    for number in range(1_000):
        died_s = now_s[0]
        while not between.is_over():
            now_s[0] += LOOK_S
        yield now_s[0] - died_s
        now_s[0] += lives_s(number)


def test_what_dies_of_its_start_is_started_less_and_less_often_but_at_least_every_few_minutes(
    now_s: list[float],
) -> None:
    dead_s = [dead for dead, _ in zip(starts(now_s, lambda _: 0.0), range(20), strict=False)]
    assert dead_s[:4] == [0.0, PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert dead_s == sorted(dead_s)
    assert dead_s[-1] == LONGEST_S


@pytest.mark.parametrize("lived_s", [LASTED_S, DAY_S])
def test_what_has_lasted_is_started_at_once_however_often_it_had_died(now_s: list[float], lived_s: float) -> None:
    lives = starts(now_s, lambda number: lived_s if number == 10 else 0.0)
    dead_s = [dead for dead, _ in zip(lives, range(13), strict=False)]
    assert dead_s[10] == LONGEST_S
    assert dead_s[11:] == [0.0, PAUSE_S]
