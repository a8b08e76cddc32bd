"""Plans: the content of a numbered commit, fixed in a file before the first try (decision 0052, plans).

Belongs here: the plan, and the directory with the plans of one table and generation. A retry reads the same plan
again, so it commits the same rows whatever has arrived since. Does not belong here: how a plan is carried out.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tidemark.model.errors import DamageError
from tidemark.storage.disk import Disk, RealDisk
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile, app_id
from tidemark.tables.table_snapshot import TableSnapshot
from tidemark.tables.tiers import DELTAS


class PlanDamageError(DamageError):
    """A plan of a committed number is missing or differs from what was written."""


class NotRetainedError(DamageError):
    """Rows are requested whose segments the manifest no longer names."""


class PlannedSegment(Struct, frozen=True):
    """A segment as it was when the plan was made; `sha256` verifies later that it is unchanged."""

    shard: int
    number: int
    file: str
    sha256: str
    bytes: int


class Plan(Struct, frozen=True, rename={"generation": "lineage"}):
    """The content of one commit. Epochs are half-open."""

    number: int  # starts at 1, because 0 means "nothing committed yet"
    generation: int
    ranges: dict[int, tuple[int, int]]  # shard → from epoch, to epoch: what this commit adds
    segments: list[PlannedSegment]
    upto: dict[int, int]  # shard → first epoch that no plan up to this one contains
    created_us: int

    @property
    def durable(self) -> dict[int, int]:
        """Shard → last epoch that is in the lake once this plan is committed (C2)."""
        return {shard: epoch - 1 for shard, epoch in self.upto.items()}


class PlanStore:
    """The plans of one table under one generation, one file each."""

    def __init__(self, directory: Path, generation: int, disk: Disk | None = None) -> None:
        self.generation = generation
        self.directory = directory / f"{generation}"
        self._disk = disk or RealDisk()

    def write(self, plan: Plan) -> None:
        """Fix a plan for ever."""
        self._disk.make_directory(self.directory)
        body = msgspec.json.encode(plan)
        self._disk.replace(self._path(plan.number), body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n")

    def find(self, number: int) -> Plan | None:
        """The plan of that number, or None if it was never made."""
        path = self._path(number)
        if not path.exists():
            return None
        body, _, rest = self._disk.read(path).partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != rest.strip():
            raise PlanDamageError(
                f"Plan {path} has another checksum than when it was written. Restore it from a backup."
            )
        plan = msgspec.json.decode(body, type=Plan)
        if plan.number != number:
            raise PlanDamageError(f"Plan {path} says that it is plan {plan.number}. Restore it from a backup.")
        return plan

    def committed(self, number: int) -> Plan | None:
        """The plan of a number that the table has committed; None for 0, an error if the plan is missing."""
        if number == 0:
            return None
        plan = self.find(number)
        if plan is None:
            raise PlanDamageError(
                f"The table holds plan {number}, but {self._path(number)} is missing, so it is unknown what was "
                "committed. Restore it from a backup."
            )
        return plan

    def durable(self, number: int) -> dict[int, int]:
        """Shard → last epoch that is in the lake once the plan of that number is committed; empty for 0 (C2)."""
        plan = self.committed(number)
        return plan.durable if plan else {}

    def all_committed(self, number: int) -> Iterator[Plan]:
        """Plans 1 to `number`, read one by one; raises if one is missing or does not follow the one before."""
        upto: dict[int, int] = {}
        for plan in filter(None, map(self.committed, range(1, number + 1))):
            if any(upto.get(shard, 1) != start for shard, (start, _) in plan.ranges.items()):
                raise PlanDamageError(
                    f"Plan {self._path(plan.number)} does not follow plan {plan.number - 1}. Restore both from backups."
                )
            upto = plan.upto
            yield plan

    def adopt(self, earlier: "PlanStore") -> None:
        """Copy the plans of the generation before: a plan stays valid, whatever happened to its commit."""
        if not earlier.directory.exists():
            return
        self._disk.make_directory(self.directory)
        for name in self._disk.list(earlier.directory):
            if name.endswith(".json"):
                self._disk.replace(self.directory / name, self._disk.read(earlier.directory / name))

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:08d}.json"


def plan_at(home: Home, version: int) -> Plan | None:
    """The plan up to which a version of `deltas` holds the log: rows made from that version cover its epochs."""
    generation = KnownTableFile(home.plans, DELTAS).read().generation
    number = lake_files.marker(home.lake / DELTAS, app_id(DELTAS, generation), version) or 0
    return PlanStore(home.plans / DELTAS, generation).committed(number)


def durable_at(home: Home, version: int) -> dict[int, int]:
    """Shard → last epoch that a version of `deltas` holds."""
    plan = plan_at(home, version)
    return plan.durable if plan else {}


def durable_in(home: Home, deltas: TableSnapshot) -> dict[int, int]:
    """Shard → last epoch that `deltas` holds as it was opened (C2)."""
    return PlanStore(home.plans / DELTAS, deltas.generation).durable(deltas.number)


def durable_epochs(home: Home) -> dict[int, int]:
    """Shard → last epoch that is in the lake, by the marker in `deltas` (C2). No JVM.

    The marker is read from the table again whenever a file of its log has changed since our last commit.
    """
    known = KnownTableFile(home.plans, DELTAS)
    try:
        found = known.extent(home.lake / DELTAS)
    except lake_files.UnreadableTableError:
        return {}  # nothing is certain until the table is built again
    return PlanStore(home.plans / DELTAS, known.read().generation).durable(found.number if found else 0)
