"""Entries without segments, batches without deltas, and a log of given entries, for what only reads them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from tests.support.live import TEN_O_CLOCK
from tidemark.log.batch_record import BatchRecord, Trigger
from tidemark.log.manifest import Entry, HourCounts, Manifest
from tidemark.model.timegrid import MINUTE_US, hour_key
from tidemark.observe.sealed_log import Log

# Of shard 0, with one delta; of what matters to a test, it says something else.
_ANY = Entry(
    *(0, 1, "", 1, 2, [], 1, 1, "", HourCounts(accepted=1)),
    *({}, {}, {}, {}, {}),
    sealed_us=0,
    incarnation=1,
    previous="",
)


class LogOf(Log):
    """As if these were all entries there are."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def below(self, upto: Mapping[int, int], after: Mapping[int, int] | None = None) -> Iterator[Entry]:
        return (entry for entry in self.beyond(after or {}) if entry.to_epoch <= upto.get(entry.shard, 1))

    def beyond(self, upto: Mapping[int, int]) -> Iterator[Entry]:
        return (entry for entry in self._entries if entry.from_epoch >= upto.get(entry.shard, 1))

    def within(self, epochs: Mapping[int, tuple[int, int]]) -> Iterator[Entry]:
        for entry in self._entries:
            first, end = epochs.get(entry.shard, (0, 0))
            if entry.from_epoch < end and entry.to_epoch > first:
                yield entry

    def batches_of(self, entry: Entry) -> list[BatchRecord]:
        return entry.batches


def entry(
    number: int, from_epoch: int, to_epoch: int, hours: Iterable[int], *batches: BatchRecord, shard: int = 0
) -> Entry:
    """An entry that has a delta in each of these hours, and records some batches."""
    return replace(
        _ANY,
        shard=shard,
        number=number,
        from_epoch=from_epoch,
        to_epoch=to_epoch,
        event_hours={hour_key(hour): HourCounts(accepted=1) for hour in hours},
        batches=list(batches),
    )


def next_entry(manifest: Manifest, *, sealed_us: int, epochs: int = 1, lost: int = 0, refused: int = 0) -> Entry:
    """An entry that follows the last one of a manifest; its segment is not there."""
    first, number = manifest.to_epoch, manifest.count + 1
    return replace(
        _ANY,
        number=number,
        file=f"{number:08d}.parquet",
        from_epoch=first,
        to_epoch=first + lost + epochs,
        lost=[(first, first + lost)] if lost else [],
        rows=epochs + refused,
        bytes=100 * epochs,
        sha256=f"{number:064d}",
        verdicts=HourCounts(accepted=epochs, refused=refused),
        producers={"web": (first, first)},
        sealed_us=sealed_us,
        previous=manifest.head,
    )


def batch(number: int, from_epoch: int, to_epoch: int, closed_us: int = TEN_O_CLOCK) -> BatchRecord:
    """A batch of some epochs, a minute long."""
    counted = dict.fromkeys(("writes", "deltas", "duplicates", "refused", "keys", "bytes"), 1)
    return BatchRecord(
        number=number,
        trigger=Trigger.TIME,
        also=(),
        from_epoch=from_epoch,
        to_epoch=to_epoch,
        mean_bytes=1.0,
        min_event_us=None,
        max_event_us=None,
        opened_us=closed_us - MINUTE_US,
        closed_us=closed_us,
        **counted,
    )
