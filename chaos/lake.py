"""A lake of a few lines: it takes sealed segments, in order, and tells how far it is. It outlives every crash.

Belongs here: what the shard learns of the batch plane. The real one is tested with real tables elsewhere.
"""

from random import Random

from chaos.history import History, must
from chaos.stored import Row, Stored
from tidemark.storage.disk import Disk


class Lake:
    """Committed rows by epoch, and the marker of the table."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._durable = 0
        self.rows: list[Row] = []

    def durable_epoch(self) -> int:
        """Last epoch that is committed; 0 if none."""
        return self._durable

    def drain(self, disk: Disk, stored: Stored, random: Random) -> None:
        """Commit sealed segments, or the first few of them."""
        stored.look(disk)
        new = [(entry, rows) for entry, rows in stored.parts() if entry.to_epoch - 1 > self._durable]
        for entry, rows in new[: random.randint(1, 3)]:
            what = f"segment {entry.file} does not follow epoch {self._durable}, up to which the lake is"
            must(entry.from_epoch == self._durable + 1, "C2", what)
            self.rows += rows
            self._durable = entry.to_epoch - 1
            self._history.note(f"the lake has committed up to epoch {self._durable}")
