"""A shard, its clients and a disk that fails, several lives long, all from one seed.

Belongs here: the order of actions, how a life ends, and the report. The same seed gives the same events and the same
disk calls, so the seed of a failure is enough to see it again.
"""

import errno
import hashlib
from enum import Enum
from random import Random
from typing import NamedTuple

from chaos.disks import EVERY_KIND, SYNCS, WRITES, CallKind, Fault, Moment, Survival
from chaos.history import ViolationError
from chaos.life import Life
from chaos.scale import draw_scale
from chaos.watching import Cut
from chaos.world import World
from tidemark.model.timegrid import DAY_US, HOUR_US

# Where the disk fails or the power goes: any call, or calls with more at stake than most.
TARGETS = (
    (EVERY_KIND, 1, 25),
    (EVERY_KIND, 1, 60),
    (WRITES, 1, 20),
    (SYNCS, 1, 30),
    (frozenset({CallKind.FSYNC_DIRECTORY}), 1, 12),
    (frozenset({CallKind.RENAME}), 1, 8),
    # A log file is removed when it is sealed, and the next one that waits for that is begun.
    (frozenset({CallKind.UNLINK}), 1, 3),
    # The first two calls of these are a file's header and the opening of producers.
    (frozenset({CallKind.PWRITE}), 3, 6),
    (frozenset({CallKind.FDATASYNC}), 3, 4),
    (frozenset({CallKind.FDATASYNC}), 3, 6),
)
# The share of worlds in which the clock leaps: refused writes hide other bugs.
LEAPING = 0.3
# In these, the share of lives that start with a clock that is ahead, and by how much.
STARTING_AHEAD = 0.25
AHEAD_US = (HOUR_US, DAY_US, 365 * DAY_US)
# What survives, and how often: outcomes that tear data apart get more tries than those that keep or lose it whole.
SURVIVALS = {
    Survival.NOTHING: 3,
    Survival.EVERYTHING: 1,
    Survival.NAMES: 1,
    Survival.SIZES: 1,
    Survival.DATA: 1,
    Survival.PREFIX: 3,
    Survival.SUFFIX: 1,
    Survival.RANDOM: 3,
}


class Ending(Enum):
    """How a life ends."""

    CUT = "cut"  # at a call, by the power or by a kill
    FAULT = "fault"
    KILL = "kill"
    STOP = "stop"


class Report(NamedTuple):
    """The result of one seed."""

    seed: int
    violation: str | None  # the rule and how it was broken
    rule: str | None
    events: list[str]  # around the violation; all of them on demand
    lives: int
    steps: int
    calls: int
    digest: str  # of every event and every disk call
    counts: dict[str, int]


class Simulation(World):
    """A world by seed."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        leaps = Random(f"leaps of {seed}")
        super().__init__(draw_scale(random), random, leaps=leaps if leaps.random() < LEAPING else None)

    def run(self) -> None:
        """Run all lives; the last one without faults."""
        for _ in range(self.scale.lives):
            self._live(self._draw_ending())
        self.live(self._go_to_the_end)
        self.end(self._draw_survival(is_cut=False))
        self.check()

    def _live(self, ending: Ending) -> None:
        plan = [self._draw_fault()] if ending is Ending.FAULT else []
        cut = self._draw_cut() if ending is Ending.CUT else None
        if self._leaps is not None and self._leaps.random() < STARTING_AHEAD:
            self.start_ahead(self._leaps.choice(AHEAD_US))
        is_cut = self.live(self._go_and_stop if ending is Ending.STOP else self.go_on, plan, cut)
        self.end(self._draw_survival(is_cut=is_cut))
        if self.has_cache and self.random.random() < (0.9 if is_cut else 0.3):
            # The next life may start from data that is not on the disk yet, and the power goes while it starts.
            start = Cut(EVERY_KIND, self.random.randint(12, 36), self.random.choice(list(Moment)))
            self.end(self._draw_survival(is_cut=self.live(self.go_on, (), start)))

    def _go_and_stop(self, life: Life) -> None:
        self.go_on(life)
        life.stop()

    def _go_to_the_end(self, life: Life) -> None:
        self.go_on(life)
        self.finish(life)

    def _draw_survival(self, *, is_cut: bool) -> Survival:
        if self.random.random() > (0.5 if is_cut else 0.4):
            return Survival.CACHE
        return self.random.choices(list(SURVIVALS), list(SURVIVALS.values()))[0]

    def _draw_ending(self) -> Ending:
        return self.random.choices(list(Ending), (5, 3, 2, 2))[0]

    def _draw_calls(self) -> tuple[frozenset[CallKind], int]:
        """Calls of any kind, or of one that matters more, and which of them: a life has about this many."""
        kinds, least, most = self.random.choice(TARGETS)
        return kinds, self.random.randint(least, most)

    def _draw_cut(self) -> Cut:
        return Cut(*self._draw_calls(), self.random.choice(list(Moment)))

    def _draw_fault(self) -> Fault:
        random = self.random
        kinds, nth = self._draw_calls()
        error = random.choice((errno.EIO, errno.ENOSPC))
        if kinds <= WRITES and random.random() < 0.5:
            # A short write, after which the next one fails, or the rest is written.
            return Fault(kinds, nth, random.choice((error, None)), written=random.randint(1, 600))
        return Fault(kinds, nth, error, is_lasting=random.random() < 0.3)


def simulate(seed: int, *, is_whole: bool = False) -> Report:
    """Run one seed. `is_whole` keeps all events for the report, even if no rule is broken."""
    world = Simulation(seed)
    violation: ViolationError | None = None
    try:
        world.run()
    except ViolationError as found:
        violation = found
    except Exception as error:  # noqa: BLE001 - nothing may come out of a shard on a sound disk: it refused to start, or lost its way
        violation = ViolationError("C7", f"unexpected {type(error).__name__}: {error}")
    history = world.history
    lines = [str(event) for event in history.events]
    digest = hashlib.sha256("\n".join([*lines, *world.calls]).encode()).hexdigest()
    return Report(
        seed=seed,
        violation=str(violation) if violation else None,
        rule=violation.rule if violation else None,
        events=history.around(violation) if violation and not is_whole else lines if is_whole else [],
        lives=history.life,
        steps=world.steps,
        calls=len(world.calls),
        digest=digest,
        counts=history.counts,
    )
