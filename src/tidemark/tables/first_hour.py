"""Where the data of a home begin: the first hour for which its tables have rows, as a small file.

Belongs here: keeping the file. The orchestrator shows partitions from there on, and not from the earliest time that an
event may have. It is a hint for people: nothing that the tables hold follows from it. Does not belong here: which
partitions there are (`assets/partitions.py`).
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from tidemark.model.timegrid import WEEK
from tidemark.storage.home import Home
from tidemark.storage.json_files import write_json

FILE = "first_hour.json"


class FirstHour(Struct, frozen=True):
    """The Monday of the first week with data, and how often one before it has come since the first was written."""

    first_us: int
    lowered: int = 0


class FirstHourFile:
    """The file of one home."""

    def __init__(self, home: Home) -> None:
        self._path = home.plans / FILE

    def read(self) -> FirstHour | None:
        """What is stored; None before the first drain, or if the file cannot be read: then partitions begin early."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=FirstHour)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def include(self, hours: Iterable[int]) -> None:
        """Note that these hours have rows. In weeks: a history that is sent backwards moves the start a few times."""
        first_us = min(map(WEEK.floor, hours), default=None)
        before = self.read()
        if first_us is None or (before and before.first_us <= first_us):
            return
        write_json(self._path, FirstHour(first_us, before.lowered + 1 if before else 0))
