"""Which epoch an old write had: answered from the segments, for retries that come after memory has forgotten (Q2).

Belongs here: finding (producer, sequence) in sealed segments. The manifest says which segment to open.
"""

from collections import OrderedDict

import pyarrow.parquet as pq

from resources.coordinator.manifest import Entry, Manifest

# Retries of old writes come in order, so the segment of the last one mostly answers the next.
REMEMBERED_SEGMENTS = 4


class FirstEpochs:
    """First epochs of sealed writes."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._known: OrderedDict[int, dict[tuple[str, int], int]] = OrderedDict()

    def find(self, producer: str, sequence: int) -> int:
        """The epoch under which this write was taken."""
        for entry in self._manifest.entries:
            first, last = entry.producers.get(producer, (1, 0))
            if first <= sequence <= last and (epoch := self._epochs(entry).get((producer, sequence))):
                return epoch
        raise LookupError(f"write {sequence} of producer {producer!r} was taken, but is in no segment")

    def _epochs(self, entry: Entry) -> dict[tuple[str, int], int]:
        if entry.number not in self._known:
            with self._manifest.open_segment(entry) as file:
                table = pq.read_table(file, columns=["producer", "sequence", "epoch"], partitioning=None)
            writes = zip(*(table[name].to_pylist() for name in ("producer", "sequence", "epoch")), strict=True)
            self._known[entry.number] = {(producer, sequence): epoch for producer, sequence, epoch in writes}
            if len(self._known) > REMEMBERED_SEGMENTS:
                self._known.popitem(last=False)
        self._known.move_to_end(entry.number)
        return self._known[entry.number]
