"""Everything that outlives a shard in the simulation: the disk, the lake, the clients, the clock and the history.

Belongs here: one life from start to end, the actions in it, and what the disk keeps. Which lives there are is in
`simulation.py`, by seed, and in `exhaustive.py`, one after another.
"""

from collections.abc import Callable, Sequence
from random import Random

from chaos.checker import check_end
from chaos.clients import Producer
from chaos.disks import Fault, PowerCut, SimulatedDisk, Survival
from chaos.history import History, Reset, must
from chaos.lake import Lake
from chaos.life import Life
from chaos.scale import FILES, KEEP_FREE, Scale
from chaos.stored import Stored
from chaos.traffic import Traffic, Write
from chaos.watching import BusyDisk, Cut
from tidemark.event_time.clock import SteadyClock
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US

# A Sunday in 2025, shortly before midnight: days change, and with them the manifest's files.
BEGIN_US = 1_749_427_000 * SECOND_US
# How often another action comes while the disk works.
INTERRUPTED = 0.06
# How far before now the earliest event time is raised to, or vectors are cut: deltas are seconds old, or up to two
# days.
RAISED_TO_US = (SECOND_US, 5 * SECOND_US, 12 * HOUR_US, 40 * HOUR_US)
# How far the wall clock leaps, both ways: from just too much to a wrong year.
LEAPS_US = (5 * MINUTE_US, HOUR_US, DAY_US, 365 * DAY_US)
# How far small corrections, which are no leaps, may bring it behind in total.
MOST_BEHIND_US = 45 * SECOND_US
# Enough for everything to end; more means a shard that does not.
STEPS_TO_FINISH = 2_000

Act = Callable[[Life], None]


class World:
    """Everything that exists, whether or not a shard runs."""

    def __init__(
        self, scale: Scale, random: Random, *, interrupted: float = INTERRUPTED, leaps: Random | None = None
    ) -> None:
        self.scale, self.random, self._interrupted = scale, random, interrupted
        self._leaps = leaps  # draws the errors of the wall clock; without it, there are none
        self.history = History()
        self.history.now_us = self.history.begun_us = BEGIN_US + random.randrange(7_200 * SECOND_US)
        self._boot_us = 0
        self._behind_us = 0  # by small corrections
        self._ahead_us = 0  # of a life that started with a wrong clock, which it cannot notice
        self.disk = SimulatedDisk()
        self.lake = Lake(self.history)
        self.stored = Stored(FILES.segments)
        traffic = Traffic(random)
        self.producers = [
            Producer(f"p{number}", scale, random, traffic, self.history) for number in range(scale.producers)
        ]
        self.life: Life | None = None
        self.calls: list[str] = []
        self.steps = 0
        self._is_interrupted = False
        self.has_cache = False  # whether data may be visible and not on the disk

    def clock(self) -> int:
        """The wall clock: the shared time, unless it has leapt (C15)."""
        return self.history.now_us + self.history.leap_us

    def boot(self) -> int:
        """A clock that cannot be set."""
        return self._boot_us

    # Lives.

    def live(self, act: Act, plan: Sequence[Fault] = (), cut: Cut | None = None) -> bool:
        """Start a shard and act on it; true if the life was cut. Call `end` afterwards."""
        self.history.life += 1
        busy = BusyDisk(self.disk, plan, cut, self._between)
        # A wrong clock at a start is noticed if it is behind everything in the log; otherwise it looks like time in
        # which no shard ran.
        if not self.history.acknowledged or self.clock() > self.history.begun_us - LEAPS_US[0]:
            self.history.leap_us = 0
        self._steady = SteadyClock(self.clock, self.boot, self.scale.settings.clock_leap_ms * 1_000)
        try:
            self.life = None
            self.life = Life(self.scale, busy, self._steady, self.random, self.history, self.stored, self.lake)
            self.history.note(f"starts behind epoch {self.life.core.engine.applied_epoch}")
            act(self.life)
        except PowerCut as where:
            self.history.note(f"ends {where}")
            return True
        except OSError as error:
            must(plan and self.life is None, "C7", f"an error of the disk came through: {error}")
            self.history.note(f"cannot start: {error}")
        return False

    def start_ahead(self, by_us: int) -> None:
        """The next life starts with a clock that is ahead, and so is everything that happens in it (C15)."""
        self._ahead_us = by_us
        self.history.now_us += by_us
        self.history.count("started ahead")

    def _set_right(self) -> None:
        """Set the clock right after a life that started ahead, and reset the home's clock."""
        if self._ahead_us:
            history = self.history
            history.wrong_us = max(history.wrong_us, history.now_us)
            history.now_us -= self._ahead_us
            self._ahead_us = 0
            history.resets.append(Reset(history.life + 1, history.now_us))
            history.note("the clock is reset")

    def end(self, mode: Survival) -> None:
        """End the process, and perhaps switch the machine off for a while."""
        if self.life is not None:
            self.life.note_epochs()
        self.calls += [f"{call.kind} {call.path} {call.size}" for call in self.disk.trace]
        self.has_cache = mode is Survival.CACHE
        self.disk = self.disk.crash(mode, self.random)
        self.history.note(f"ends; of the disk survives: {mode}")
        self.life = None
        self._set_right()

    def check(self) -> None:
        """Check everything, after a last life without faults."""
        self.stored.look(self.disk)
        writes: list[Write] = [write for producer in self.producers for write in producer.writes.values()]
        check_end(self.scale, self.stored, self.history, self.lake, self.disk, writes)

    def go_on(self, life: Life) -> None:
        """Take some steps of all kinds."""
        if self.random.random() < 0.4:
            # Files found at the start are sealed at once if there is nothing else to do; otherwise when there is time.
            life.seal()
        if self.random.random() < 0.7:
            # Most producers are there when a shard starts.
            for producer in self.producers:
                producer.step(life)
            for _ in range(4):
                life.write()
        for _ in range(self.random.randint(self.scale.steps // 2, self.scale.steps)):
            self._step(life)
            if life.is_over:
                # Producers that come too late get an error.
                for producer in self.producers:
                    producer.step(life)
                return

    def finish(self, life: Life) -> None:
        """Without further faults, every producer gets an answer, and the shard stops."""
        life.disk.set_free_bytes(None)
        self._leaps, self.history.leap_us = None, 0
        for step in range(STEPS_TO_FINISH):
            self.tick()
            life.write()
            life.consume()
            if step % 7 == 0:
                life.seal()
            if not [producer for producer in self.producers if not producer.finish(life)]:
                life.stop()
                return
        must(False, "C8", f"{STEPS_TO_FINISH} steps without faults were not enough to answer every producer")

    # Steps.

    def _step(self, life: Life) -> None:
        self.steps += 1
        self.tick()
        chance = self.random.random()
        if chance < 0.40:
            self.random.choice(self.producers).step(life)
        elif chance < 0.80:
            life.write()
            if self.random.random() < 0.6:
                life.consume()
        else:
            self._act_otherwise(life)
        life.look()

    def _act_otherwise(self, life: Life) -> None:
        """Act as neither a producer nor the writer."""
        match self.random.randrange(14):
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
                life.raise_earliest(self._limit_us())
            case 11:
                life.cut_vectors(self._limit_us())
            case 12:
                life.disk.set_free_bytes(self.random.choice((None, None, KEEP_FREE - 1, int(KEEP_FREE * 1.05))))
            case _:
                self._pass(self.random.choice((3, 30)) * SECOND_US)

    def _limit_us(self) -> int:
        """Limits are for ever, so they are never raised by a clock that is ahead: the commands ensure that."""
        return self.history.now_us - self._ahead_us - self.random.choice(RAISED_TO_US)

    def _between(self) -> None:
        """Act while the disk works for the writer or the sealer."""
        life = self.life
        if life is None or not life.is_busy or self._is_interrupted or self.random.random() > self._interrupted:
            return
        self._is_interrupted = True
        try:
            self.tick()
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

    def tick(self) -> None:
        """Let time go on, mostly."""
        chance = self.random.random()
        if chance < 0.02:
            back_us = self.random.choice((1_000, 2 * SECOND_US, 40 * SECOND_US))
            if self._behind_us + back_us <= MOST_BEHIND_US:
                self._behind_us += back_us
                self.history.now_us -= back_us
        elif chance < 0.9:
            self._pass(self.random.randrange(20_000))
        else:
            self._pass(self.random.randrange(3 * SECOND_US))
        if self._leaps is not None:
            self._leap(self._leaps)

    def _pass(self, elapsed_us: int) -> None:
        self.history.now_us += elapsed_us
        self._boot_us += elapsed_us

    def _leap(self, random: Random) -> None:
        """Now and then let the wall clock leap, and set it right after some steps."""
        history = self.history
        if history.leap_us and random.random() < 0.25:
            history.leap_us = 0
            history.note("the clock is set right")
        elif not history.leap_us and random.random() < 0.08:
            by_us = random.choice(LEAPS_US) * random.choice((1, -1))
            is_trusted = self._steady.leap is None  # else a leap ahead could be the one that sets it right
            if by_us < 0 or is_trusted:
                history.leap_us = by_us
                history.note(f"the clock leaps by {by_us / SECOND_US:g} s")
                history.count("leaps")
