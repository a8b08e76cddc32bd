"""How the simulation looks into a shard and acts between its steps, without a thread.

Belongs here: an engine that shows its every assignment, sealing in steps, and a disk that lets others act while it
works. All of it is put around the product from outside; the product knows nothing of it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chaos.disks import Call, CallKind, Fault, FaultyDisk, Moment, SimulatedDisk
from chaos.faults import FaultySystem
from chaos.history import must
from tidemark.coordinator.engine import Engine

SEEN = frozenset({"snapshot", "flushed_epoch", "groups_flushed", "_in_flight"})


class WatchedEngine(Engine[Any, Any, Any]):
    """An engine that readers look at between any two assignments, as a thread on another core may."""

    def __setattr__(self, name: str, value: object) -> None:
        before = self.flushed_epoch
        object.__setattr__(self, name, value)
        if name in SEEN:
            flushed = self.flushed_epoch
            what = f"the flushed watermark is {flushed}, but readers are shown a snapshot of {self.snapshot.epoch}"
            must(flushed <= self.snapshot.epoch, "C6", what)
            must(before <= flushed, "C2", f"the flushed watermark fell from {before} to {flushed}")
            what = f"the flushed watermark is {flushed}, above the last applied epoch {self.applied_epoch}"
            must(flushed <= self.applied_epoch, "C2", what)


def watch(engine: Engine[Any, Any, Any]) -> None:
    """Check every assignment from now on."""
    engine.__class__ = WatchedEngine


class StepSealing:
    """Seals when it is stepped, or when the writer has to wait for it. See `flusher.Sealing`."""

    def __init__(self) -> None:
        self._job: Callable[[], None] | None = None
        self._error: Exception | None = None

    @property
    def has_job(self) -> bool:
        """Whether a closed log file waits to be sealed."""
        return self._job is not None

    def submit(self, job: Callable[[], None]) -> None:
        must(self._job is None, "C7", "a log file was passed on for sealing before the one before it was sealed")
        self._job = job

    def step(self) -> None:
        """Run the waiting job; an error is kept for the next waiter, as on a thread."""
        job, self._job = self._job, None
        if job is not None:
            try:
                job()
            except OSError as error:
                self._error = error

    def wait(self) -> None:
        self.step()
        if self._error is not None:
            raise self._error


class Cut(NamedTuple):
    """A machine that stops at the n-th call of some kinds, from 1."""

    kinds: frozenset[CallKind]
    nth: int
    moment: Moment


class _BusySystem(FaultySystem):
    """A system that others use, too: they may act before every call."""

    def __init__(
        self, disk: SimulatedDisk, plan: Sequence[Fault], cut: Cut | None, between: Callable[[], None]
    ) -> None:
        super().__init__(disk.system, plan)
        self._disk, self._cut_plan, self._between = disk, cut, between
        self._calls = 0

    def _fault(self, call: Call) -> Fault | None:
        self._between()
        if self._cut_plan is not None and call.kind in self._cut_plan.kinds:
            self._calls += 1
            if self._calls == self._cut_plan.nth:
                self._disk.cut_power(len(self._disk.trace) + 1, self._cut_plan.moment)
        return super()._fault(call)


class BusyDisk(FaultyDisk):
    """A faulty disk that calls back before each of its calls, and on which the power may go."""

    def __init__(
        self, disk: SimulatedDisk, plan: Sequence[Fault], cut: Cut | None, between: Callable[[], None]
    ) -> None:
        self.faults = _BusySystem(disk, plan, cut, between)
        self.system = self.faults
