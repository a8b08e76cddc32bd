"""The small files of a shard: which epochs are reserved, and its state when its log was last sealed.

Belongs here: their content, and how they are read and replaced. Each carries a checksum; each is replaced as a whole.
"""

from pathlib import Path
from typing import TypeVar

import google_crc32c
import msgspec
from msgspec import Struct

from tidemark.event_time.watermarks import StreamState
from tidemark.log.batch_record import BatchRecord
from tidemark.log.control import VectorsCut
from tidemark.log.run_info import RunInfo
from tidemark.model.event_time_rules import EventTimeRules
from tidemark.model.shard_errors import LogDamageError
from tidemark.shard_state.books import Books
from tidemark.shard_state.producers import ProducerState
from tidemark.storage.disk import Disk

STATE_FILE = "state.json"


class Reservation(Struct, frozen=True):
    """Epochs below `to_epoch` may have been given out; `incarnation` is the process that gave them out (C7)."""

    to_epoch: int = 1  # epochs start at 1, because 0 means "nothing yet"
    incarnation: int = 0


class ShardState(Struct, frozen=True):
    """State that cannot be read from the log files that are still there."""

    next_file: int = 1  # log files below this number are sealed
    last_received_us: int = 0
    producers: dict[str, ProducerState] = {}  # in an older home; a start moves them to the ledger
    ledger: list[RunInfo] = []  # what is known of producers, as of the last sealed file
    watermarks: dict[str, StreamState] = {}
    batches: list[BatchRecord] = []  # closed since the last segment, if their log file is gone
    earliest_us: int | None = None  # events before this are refused, whatever the settings say (R5)
    vectors_cut: VectorsCut | None = None  # older changes to vectors are refused (K4)
    rules: EventTimeRules | None = None  # in force when the last file was closed; None in an older home
    books: Books = Books()  # of deltas that were turned away (A3)
    resets: int = 0  # how many resets of the clock these times include (C15)


T = TypeVar("T", bound=Struct)


class _Envelope(Struct, frozen=True):
    crc32c: int
    content: msgspec.Raw


def load(disk: Disk, path: Path, kind: type[T]) -> T | None:
    """The file's content, or None if there is no such file."""
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return None
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
        if google_crc32c.value(bytes(envelope.content)) == envelope.crc32c:
            return msgspec.json.decode(envelope.content, type=kind)
    except msgspec.MsgspecError:
        pass
    raise LogDamageError(
        f"{path} is damaged. Restore it from a backup together with the log directory; nothing was changed."
    )


def save(disk: Disk, path: Path, content: Struct) -> None:
    """Replace the file, durably."""
    disk.replace(path, encode(content))


def encode(content: Struct) -> bytes:
    """The bytes of such a file."""
    encoded = msgspec.json.encode(content)
    return msgspec.json.encode(_Envelope(google_crc32c.value(encoded), msgspec.Raw(encoded)))


def reservation_name(incarnation: int) -> str:
    """Each incarnation reserves in a file of its own."""
    return f"reservation-{incarnation:010d}.json"


def read_reservation(disk: Disk, directory: Path) -> Reservation:
    """The reservation over all incarnations that have left one."""
    while True:
        names = [name for name in disk.list(directory) if name.startswith("reservation") and name.endswith(".json")]
        found = [each for name in names if (each := load(disk, directory / name, Reservation))]
        if len(found) == len(names):
            break
        # A writer that has just started covers the missing one by its own, which is not in the list yet.
    return Reservation(
        max((each.to_epoch for each in found), default=1), max((each.incarnation for each in found), default=0)
    )
