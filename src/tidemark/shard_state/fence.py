"""Which process may write a shard: the one that took it over last, and no other (C7, C14).

Belongs here: the take-over, and the question "am I still the one?". A lock file keeps two processes apart on one
machine. It does not reach a process on another machine, nor one that was suspended while an operator removed the file.
So every start also writes its **incarnation** next to the log, and the writer reads it back before it acknowledges a
write:

    take-over   write the incarnation, durably ──▶ read the tail of the log
    writer      sync the frame ──▶ read the incarnation back ──▶ acknowledge

A process that reads its own incarnation back after the sync knows that the next one had not yet begun to read the tail,
and will find the frame there. The other order (look, then sync) proves nothing.
"""

from pathlib import Path

from msgspec import Struct

from tidemark.model.shard_errors import ShardFencedError
from tidemark.shard_state.state import Reservation, encode, load, read_reservation, reservation_name, save
from tidemark.storage.disk import Disk

INCARNATION_FILE = "incarnation.json"


class Incarnation(Struct, frozen=True):
    """One start of a shard's writer."""

    number: int = 0  # rises with every start
    token: str = ""  # tells two processes apart that started at the same time


class Fence:
    """The right of one process to write in a shard's directory, as long as no other has taken over."""

    def __init__(self, disk: Disk, shard: int, directory: Path, mine: Incarnation) -> None:
        self._disk, self._shard, self._directory = disk, shard, directory
        self._path, self._expected = directory / INCARNATION_FILE, encode(mine)
        self.incarnation = mine.number

    @classmethod
    def take_over(cls, disk: Disk, shard: int, directory: Path, token: str) -> "Fence":
        """Take over as the only writer. From here on no earlier process acknowledges anything."""
        before = load(disk, directory / INCARNATION_FILE, Incarnation) or Incarnation()
        # An older home has the number in its reservation.
        number = max(before.number, read_reservation(disk, directory).incarnation) + 1
        mine = Incarnation(number, token)
        save(disk, directory / INCARNATION_FILE, mine)
        return cls(disk, shard, directory, mine)

    def check(self) -> None:
        """Raise unless this process is still the writer."""
        try:
            found = self._disk.read(self._path)
        except FileNotFoundError:
            found = b""
        if found != self._expected:
            raise ShardFencedError(self._shard, self.incarnation)

    def reserve(self, to_epoch: int) -> None:
        """Reserve epochs, in a file of this incarnation's own: one that was fenced out cannot take them back."""
        path = self._directory / reservation_name(self.incarnation)
        save(self._disk, path, Reservation(to_epoch, self.incarnation))

    def forget_others(self) -> None:
        """Remove the reservations of earlier incarnations, once this one's covers them."""
        for name in self._disk.list(self._directory):
            if name.startswith("reservation") and name.endswith(".json") and name != reservation_name(self.incarnation):
                self._disk.remove(self._directory / name)
