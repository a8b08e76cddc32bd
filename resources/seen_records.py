"""Records that were read before, kept between processes: the orchestrator stores each in an event of its own.

Belongs here: the file of records by the number of their event. Reading seventy thousand events of a year takes the
orchestrator's own classes half a minute, and a refresh of one hour needs what all of them say. The file only saves
reading: a line that is torn, or a file that is gone, is read from the orchestrator again. Does not belong here: what is
asked, and whether the numbers still are those of the same events (`record.py`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from resources.record import Record
from tidemark.storage.home import Home
from tidemark.storage.privacy import make_private

if TYPE_CHECKING:
    from dagster import DagsterInstance

# A file of more lines is written anew when half of them are about earlier materializations.
FEW_LINES = 10_000


class _Line(Struct, frozen=True):
    event: int
    record: Record


class SeenRecords(dict[int, Record]):
    """The records by the number of their event, as `Record.latest_by_partition` takes them; `save` leaves new ones."""

    def __init__(self, home: Home, instance: "DagsterInstance") -> None:
        # Numbers of events are those of one storage.
        self._path = home.dagster / f"records-{instance.run_storage.get_run_storage_id()}.jsonl"  # type: ignore[attr-defined]
        super().__init__(self._read())
        self._saved = dict(self)

    def clear(self) -> None:
        """Forget them all, in the file as well."""
        super().clear()
        self._saved.clear()
        self._path.unlink(missing_ok=True)

    def save(self) -> None:
        """Leave what was read since."""
        new = [event for event, record in sorted(self.items()) if self._saved.get(event) is not record]
        last = {(record.asset, record.partition): event for event, record in sorted(self.items())}
        if len(self) > max(FEW_LINES, 2 * len(last)):
            self._write_anew(set(last.values()))
        elif new:
            # One write: the lines of two processes do not mix.
            with open(self._path, "ab", buffering=0, opener=make_private) as file:
                file.write(b"".join(map(self._line, new)))
        self._saved = dict(self)

    def _line(self, event: int) -> bytes:
        # After a new line, because the last one there may be torn.
        return b"\n" + msgspec.json.encode(_Line(event, self[event]))

    def _read(self) -> Iterator[tuple[int, Record]]:
        decoder = msgspec.json.Decoder(_Line)
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                found = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # torn by a crash, or of another version
            yield found.event, found.record

    def _write_anew(self, events: set[int]) -> None:
        for event in self.keys() - events:
            del self[event]
        temporary = self._path.with_name(f"{self._path.name}.tmp")
        with open(temporary, "wb", opener=make_private) as file:
            file.writelines(map(self._line, sorted(self)))
        temporary.replace(self._path)
