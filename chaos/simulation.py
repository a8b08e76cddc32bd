"""A shard, its clients and a disk that fails, several lives long, all from one seed.

Belongs here: who does what when, how a life ends, and the report. The same seed gives the same events and the same
disk calls, so the seed of a failure is all that is needed to see it again.
"""

import errno
import hashlib
from enum import Enum
from random import Random
from typing import NamedTuple

from chaos.checker import check_end
from chaos.clients import Producer
from chaos.disks import EVERY_KIND, SYNCS, WRITES, CallKind, Fault, Moment, PowerCut, SimulatedDisk, Survival
from chaos.history import History, ViolationError, must
from chaos.lake import Lake
from chaos.life import Life
from chaos.scale import FILES, KEEP_FREE, draw_scale
from chaos.stored import Stored
from chaos.traffic import Traffic, Write
from chaos.watching import BusyDisk, Cut
from resources.timegrid import SECOND_US

# A Sunday in 2025, shortly before midnight: days change, and with them the manifest's files.
BEGIN_US = 1_749_427_000 * SECOND_US
# How often somebody does something while the disk works on something else.
INTERRUPTED = 0.06
# Where the disk fails or the power goes: any call, or calls at which more is at stake than at most.
TARGETS = (
    (EVERY_KIND, 25),
    (EVERY_KIND, 60),
    (WRITES, 20),
    (SYNCS, 30),
    (frozenset({CallKind.PWRITE}), 6),
    (frozenset({CallKind.FDATASYNC}), 4),
    (frozenset({CallKind.FDATASYNC}), 6),
    (frozenset({CallKind.FSYNC_DIRECTORY}), 12),
    (frozenset({CallKind.RENAME}), 8),
)
# What is left, and how often: what tears things apart is worth more tries than what keeps or loses them whole.
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
# Enough for anything to come to an end; more is a shard that does not.
STEPS_TO_FINISH = 2_000


class Ending(Enum):
    """How a life ends."""

    CUT = "cut"  # at a call, by the power or by a kill
    FAULT = "fault"
    KILL = "kill"
    STOP = "stop"


class Report(NamedTuple):
    """What one seed gave."""

    seed: int
    violation: str | None  # the rule and what broke it
    rule: str | None
    events: list[str]  # around the violation; all of them on demand
    lives: int
    steps: int
    calls: int
    digest: str  # of every event and every disk call
    counts: dict[str, int]


class World:
    """Everything that outlives a shard."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scale = draw_scale(self.random)
        self.history = History()
        self.history.now_us = BEGIN_US + self.random.randrange(7_200 * SECOND_US)
        self.disk = SimulatedDisk()
        self.lake = Lake(self.history)
        self.stored = Stored(FILES.segments)
        self.traffic = Traffic(self.random)
        self.producers = [
            Producer(f"p{number}", self.scale, self.random, self.traffic, self.history)
            for number in range(self.scale.producers)
        ]
        self.life: Life | None = None
        self.calls: list[str] = []
        self.steps = 0
        self._is_interrupted = False
        self._has_cache = False  # whether something may be visible and not on the disk

    def clock(self) -> int:
        """The time, as everybody here has it."""
        return self.history.now_us

    # Lives.

    def run(self) -> None:
        """All lives; the last one goes well."""
        for _ in range(self.scale.lives):
            self._live(self._draw_ending())
        self._live(None)

    def _live(self, ending: Ending | None) -> None:
        self.history.life += 1
        plan = [self._draw_fault()] if ending is Ending.FAULT else []
        cut = self._draw_cut() if ending is Ending.CUT else None
        busy = BusyDisk(self.disk, plan, cut, self._between)
        is_cut = False
        try:
            self.life = None
            self.life = Life(self.scale, busy, self.clock, self.random, self.history, self.stored, self.lake)
            self.history.note(f"starts behind epoch {self.life.core.engine.applied_epoch}")
            self._go_on(self.life)
            if ending is None:
                self._finish(self.life, busy)
            elif ending is Ending.STOP:
                self.life.stop()
        except PowerCut as where:
            self.history.note(f"ends {where}")
            is_cut = True
        except OSError as error:
            must(ending is Ending.FAULT and self.life is None, "C7", f"an error of the disk came through: {error}")
            self.history.note(f"cannot start: {error}")
        self._end(is_cut=is_cut)
        if ending is None:
            self.stored.look(self.disk)
            check_end(self.scale, self.stored, self.history, self.lake, self.disk, self._writes())

    def _end(self, *, is_cut: bool) -> None:
        """The process is gone, and perhaps the machine was off for a while."""
        if self.life is not None:
            self.life.note_epochs()
        self.calls += [f"{call.kind} {call.path} {call.size}" for call in self.disk.trace]
        is_off = self.random.random() < (0.6 if is_cut else 0.4)
        mode = self.random.choices(list(SURVIVALS), list(SURVIVALS.values()))[0] if is_off else Survival.CACHE
        self._has_cache = not is_off
        self.disk = self.disk.crash(mode, self.random)
        self.history.note(f"ends; of the disk survives: {mode}")
        self.life = None

    def _go_on(self, life: Life) -> None:
        if self.random.random() < 0.7:
            # Most producers are there when a shard starts.
            for producer in self.producers:
                producer.step(life)
            for _ in range(4):
                life.write()
        for _ in range(self.random.randint(1, self.scale.steps)):
            self._step(life)
            if life.is_over:
                # Those who come too late are told.
                for producer in self.producers:
                    producer.step(life)
                return

    def _finish(self, life: Life, disk: BusyDisk) -> None:
        """Nothing goes wrong any more: everybody gets an answer, and the shard stops."""
        disk.set_free_bytes(None)
        for step in range(STEPS_TO_FINISH):
            self._tick()
            life.write()
            life.consume()
            if step % 7 == 0:
                life.seal()
            if not [producer for producer in self.producers if not producer.finish(life)]:
                life.stop()
                return
        must(False, "C8", f"{STEPS_TO_FINISH} steps without faults were not enough to answer everybody")

    # Steps.

    def _step(self, life: Life) -> None:
        self.steps += 1
        self._tick()
        chance = self.random.random()
        if chance < 0.40:
            self.random.choice(self.producers).step(life)
        elif chance < 0.80:
            life.write()
            if self.random.random() < 0.6:
                life.consume()
        else:
            self._aside(life)
        life.look()

    def _aside(self, life: Life) -> None:
        """Whatever is neither a producer nor the writer."""
        match self.random.randrange(12):
            case 0 | 1:
                life.seal()
            case 2 | 3:
                life.view()
            case 4:
                life.read()
            case 5 | 6:
                life.drain()
            case 7 | 8:
                life.ask_seal()
            case 9:
                life.ask_batch()
            case 10:
                life.disk.set_free_bytes(self.random.choice((None, None, KEEP_FREE - 1, int(KEEP_FREE * 1.05))))
            case _:
                self.history.now_us += self.random.choice((3, 30)) * SECOND_US

    def _between(self) -> None:
        """Somebody comes while the disk works for the writer or the sealer."""
        life = self.life
        if life is None or not life.is_busy or self._is_interrupted or self.random.random() > INTERRUPTED:
            return
        self._is_interrupted = True
        try:
            self._tick()
            chance = self.random.random()
            if chance < 0.7:
                self.random.choice(self.producers).step(life, may_begin=not life.is_stopping)
            elif chance < 0.8:
                life.view()
            elif chance < 0.9:
                life.read()
            else:
                life.seal_meanwhile()
        finally:
            self._is_interrupted = False

    def _tick(self) -> None:
        """Time goes on, mostly."""
        chance = self.random.random()
        if chance < 0.02:
            self.history.now_us -= self.random.choice((1_000, 2 * SECOND_US, 40 * SECOND_US))
        elif chance < 0.9:
            self.history.now_us += self.random.randrange(20_000)
        else:
            self.history.now_us += self.random.randrange(3 * SECOND_US)

    def _draw_ending(self) -> Ending:
        return self.random.choices(list(Ending), (8 if self._has_cache else 5, 3, 2, 2))[0]

    def _draw_calls(self) -> tuple[frozenset[CallKind], int]:
        """Calls of any kind, or of one that matters more, and which of them: a life has about so many."""
        kinds, most = self.random.choice(TARGETS)
        return kinds, self.random.randint(1, most)

    def _draw_cut(self) -> Cut:
        if self._has_cache and self.random.random() < 0.6:
            # What a start reads may still be lost while it starts.
            return Cut(EVERY_KIND, self.random.randint(5, 35), self.random.choice(list(Moment)))
        return Cut(*self._draw_calls(), self.random.choice(list(Moment)))

    def _draw_fault(self) -> Fault:
        random = self.random
        kinds, nth = self._draw_calls()
        error = random.choice((errno.EIO, errno.ENOSPC))
        if kinds <= WRITES and random.random() < 0.5:
            # A short write, after which the next one fails, or the rest is written.
            return Fault(kinds, nth, random.choice((error, None)), written=random.randint(1, 600))
        return Fault(kinds, nth, error, is_lasting=random.random() < 0.3)

    def _writes(self) -> list[Write]:
        return [write for producer in self.producers for write in producer.writes.values()]


def simulate(seed: int, *, is_whole: bool = False) -> Report:
    """Run one seed. `is_whole` keeps all events for the report, also when nothing is wrong."""
    world = World(seed)
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
