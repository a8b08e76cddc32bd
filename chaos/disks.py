"""The disks of the simulation: one that forgets what was not synced, and one that fails on demand.

Belongs here: the disks that a test or the harness uses in place of the real one. Both run the code of `RealDisk` on
another operating system, so the order of its system calls is tested, too; calls are counted as system calls, which is
finer than the calls of `Disk`: the power may go between the write, the sync and the rename of one `replace`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from chaos.faults import EVERY_KIND, SYNCS, WRITES, Fault, FaultySystem
from chaos.kernel import Call, CallKind, Moment, PowerCut, SimulatedKernel
from chaos.nodes import SECTOR
from chaos.survival import Survival
from tidemark.storage.disk import RealDisk

__all__ = [
    "EVERY_KIND",
    "SECTOR",
    "SYNCS",
    "WRITES",
    "Call",
    "CallKind",
    "Fault",
    "FaultyDisk",
    "Moment",
    "PowerCut",
    "SimulatedDisk",
    "Survival",
]


class SimulatedDisk(RealDisk):
    """A disk in memory, for one life of a machine; `crash` returns the one for the next life."""

    def __init__(self, kernel: SimulatedKernel | None = None) -> None:
        self.kernel = kernel or SimulatedKernel()
        self.system = self.kernel

    @property
    def trace(self) -> list[Call]:
        """The calls of this life that changed something or made it durable, in order."""
        return self.kernel.trace

    def cut_power(self, at: int, moment: Moment = Moment.BEFORE) -> None:
        """Let the power go at the n-th call of `trace`, from 1: it raises `PowerCut`, and so does every later one."""
        self.kernel.cut_power(at, moment)

    def crash(self, mode: Survival, random: Random) -> "SimulatedDisk":
        """Cut the power now, if it is still on; return the disk as it may be afterwards.

        May be called again with another mode: the disk as it would be, had it turned out differently.
        """
        self.kernel.stop()
        return self.after(mode, random)

    def after(self, mode: Survival, random: Random) -> "SimulatedDisk":
        """The disk as it might be if the power went now; it does not, and this life goes on."""
        return SimulatedDisk(self.kernel.after(mode, random))

    def watch(self, look: "Callable[[Call, Moment, SimulatedDisk], None]") -> None:
        """Show each call before it is made, and each write in its middle, with the disk as it is then.

        So one run of a workload is enough to try every crash in it. Call only `after` on the disk that is shown.
        """
        self.kernel.on_call = lambda call, moment, kernel: look(call, moment, SimulatedDisk(kernel))

    def store(self, path: Path, data: bytes) -> None:
        """Put a file in place directly, all of it synced and no call counted: to try out damage."""
        self.kernel.store(path, data)


class FaultyDisk(RealDisk):
    """Another disk, real or simulated, on which the calls of a plan fail.

    A sync that fails on a simulated disk loses its data: no later sync makes up for it.
    """

    def __init__(self, disk: RealDisk, plan: Sequence[Fault] = ()) -> None:
        self.faults = FaultySystem(disk.system, plan)
        self.system = self.faults

    @property
    def trace(self) -> list[Call]:
        """Every call that might have failed, including those that did."""
        return self.faults.trace

    def fail(self, fault: Fault) -> None:
        """Add a fault; its calls are counted from now on."""
        self.faults.add(fault)

    def set_free_bytes(self, free_bytes: int | None) -> None:
        """Set the answer of `free_bytes` from now on; None for the truth."""
        self.faults.free_bytes = free_bytes
