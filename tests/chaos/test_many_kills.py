"""`kill -9` of the real process under load, again and again: nothing lost, nothing twice, nothing out of order (C7)."""

import signal as signals
import sys
from pathlib import Path
from random import Random

import pytest

from orchestration.proof import prove
from resources.home import Home
from tests.support.history import History
from tests.support.live import new_home
from tests.support.mortal import Killing, Nursery, Orders

SEED = 5
# A few groups fill a log file, so that one is sealed at any moment. Identities are remembered for longer than a copy
# is away from its original, and not for ever: a start would read every segment.
BUSY = """
shards = 2
segment_bytes = 16_384
watermark_ms = 20
recent_identities = 1_000
[batch]
max_ms = 100
"""


def any_moment(random: Random) -> Killing:
    """One in five while it starts, the others while it writes."""
    at_start = Killing(sys.maxsize, random.uniform(0.0, 0.5), is_from_birth=True)
    by_count = Killing(random.randint(0, 150), 20.0)
    by_time = Killing(sys.maxsize, random.uniform(0.0, 0.5))
    return random.choices((at_start, by_count, by_time), (1, 2, 2))[0]


def kill_often(home: Home, kills: int, seed: int) -> History:
    """So many lives that are killed, and one that comes to its end; all that was told is true after each."""
    random, history = Random(seed), History(home)
    with Nursery() as nursery:
        for life in range(kills + 1):
            is_last = life == kills
            orders = Orders(str(home.root), random.getrandbits(32), history.acknowledged(), 20 if is_last else None)
            killing = any_moment(random)
            try:
                story = nursery.live(orders, None if is_last else killing)
                assert story.code == (0 if is_last else -signals.SIGKILL)
                history.hear(story.said)
                history.check_sealed()
            except Exception as error:
                error.add_note(f"seed {seed}, life {life}, {killing}; the home is {home.root}")
                raise
    history.check_all()
    return history


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_busy_process_killed_at_any_moment_keeps_all_it_has_told_once_and_in_order_c7(
    tmp_path: Path, kills: int
) -> None:
    home = new_home(tmp_path, BUSY)
    history = kill_often(home, kills, SEED)
    assert len(history.flushed) > 10 * kills, "it must have been busy for the test to mean anything"
    assert history.segments > 2 * kills
    proof = prove(home)
    assert not proof.damage
    assert proof.segments == history.segments
