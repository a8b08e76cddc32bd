"""`kill -9` of the real process under load, again and again: nothing lost, nothing twice, nothing out of order (C7)."""

import json
import signal as signals
import sys
from pathlib import Path
from random import Random

import pytest

from tests.support.batch import DRAIN_STEPS, rows_of, run
from tests.support.history import History
from tests.support.live import new_home
from tests.support.mortal import Killing, Nursery, Orders
from tidemark.observe.verification import prove
from tidemark.storage.failpoints import FAILPOINTS
from tidemark.storage.home import Home
from tidemark.tables.plans import durable_epochs

SEED = 5
DRAIN_KILLS = 20
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


# Copies are left to the drain, so that a plan that is taken up again has something to judge.
DRAINED = """
shards = 2
segment_bytes = 16_384
recent_identities = 0
[spark]
master = "local[2]"
"""
LIVE_STEPS = [name for name in FAILPOINTS if name.startswith(("log.", "seal."))]
# A drain of signals makes no index; and the second record of a run is a rollup's.
OF_A_DRAIN = [name for name in DRAIN_STEPS if not name.startswith("index.")]
BATCH_STEPS = [*OF_A_DRAIN, "record.logged:2"]


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
                history.hear(story.said)
                assert story.code == (0 if is_last else -signals.SIGKILL)
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


def send_and_die(nursery: Nursery, history: History, home: Home, random: Random) -> None:
    """A sender that comes to its end, so that there is something to drain, and one that is killed at some step."""
    step = f"{random.choice(LIVE_STEPS)}:{random.randint(1, 2)}"
    for failpoint in (None, step):
        seed = random.getrandbits(32)
        story = nursery.live(Orders(str(home.root), seed, history.acknowledged(), 6, failpoint, has_lake=True))
        history.hear(story.said)
        assert story.code == (-signals.SIGKILL if failpoint else 0), f"{failpoint} must be reached"
        history.check_sealed()


def check_lake(history: History, home: Home) -> dict[int, int]:
    """What the marker's plan says is what is in the table: all of it, once, and nothing else."""
    durable = durable_epochs(home)
    found = [delta_id for (delta_id,) in rows_of(home, "deltas", "delta_id")] if durable else []
    assert found == history.deltas_up_to(durable)
    for (shard, producer), sequence in history.durable:
        epoch = history.flushed[(shard, producer), sequence]
        assert epoch <= durable[shard], f"write {sequence} of {producer} in shard {shard} was told to be durable"
    return durable


@pytest.mark.slow
def test_a_drain_killed_at_random_steps_between_killed_senders_holds_each_delta_once_c7(tmp_path: Path) -> None:
    home, random = new_home(tmp_path, DRAINED), Random(SEED)
    history, durable = History(home), dict[int, int]()
    with Nursery() as nursery:
        for kill in range(DRAIN_KILLS):
            step = random.choice(BATCH_STEPS)
            try:
                send_and_die(nursery, history, home, random)
                assert run(home, "drain", step)[0] == -signals.SIGKILL, "the step must be reached"
                before, durable = durable, check_lake(history, home)
                assert all(durable[shard] >= epoch for shard, epoch in before.items()), "it is less durable than before"
            except Exception as error:
                error.add_note(f"seed {SEED}, kill {kill}, {step}; the home is {home.root}")
                raise
        story = nursery.live(Orders(str(home.root), 0, history.acknowledged(), 1, has_lake=True))
        history.hear(story.said)
    history.check_all()
    code, answer = run(home, "drain")
    assert code == 0
    assert json.loads(answer)["checks"]["failed"] == []
    check_lake(history, home)
    assert durable_epochs(home) == history.last_epochs()
    assert json.loads(run(home, "account")[1])["disagreements"] == []
    assert history.durable, "somebody must have been told for the test to mean anything"
