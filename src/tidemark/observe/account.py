"""The account: where every delta went.

Belongs here: received = accepted + duplicate + refused + turned away + waiting, from the manifests' verdicts and, for
duplicates that only the drain could find, from `dead_letters`; and whether the tables agree. What was turned away was
never numbered, so the log has counts of it and no rows. Read by delta-rs: no JVM.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import nlargest

import pyarrow.parquet as pq
from msgspec import Struct

from tidemark.event_time.clock import shown
from tidemark.log.manifest import Entry, HourCounts, Manifest
from tidemark.model.deltas import Reason, Verdict
from tidemark.model.turned_away import Tally
from tidemark.observe.turned_away import read_books
from tidemark.shard_state.live import read_live
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home
from tidemark.tables.lake_files import partitions
from tidemark.tables.plans import durable_epochs

# Of the producers that were turned away the account names so many.
TOP_PRODUCERS = 10


class Outcomes(Struct, frozen=True):
    """How many received deltas had each outcome; the outcomes are disjoint and add up."""

    received: int  # a retry of a numbered write is not received again; what was turned away is, each time it comes
    accepted: int  # in `deltas`
    duplicate: int  # found at arrival or by the drain
    refused: int  # in `dead_letters`, or on their way there, each with its reason
    turned_away: int  # before they were numbered, for a reason that has nothing to do with their content
    waiting: int  # accepted, sealed and not drained yet: in `deltas` soon, unless the drain finds a duplicate


class Account(Struct, frozen=True):
    """The outcomes, the reasons of refusals, where duplicates were found, and whether the tables agree."""

    outcomes: Outcomes
    reasons: dict[str, int]  # of the refused ones, most frequent first
    duplicates_at_arrival: int
    duplicates_at_drain: int
    turned_away: dict[str, int]  # reason → deltas, most frequent first
    turned_away_producers: dict[str, int]  # the first few, most frequent first; "*" for those whose names are not kept
    turned_away_ids: dict[str, list[str]]  # reason → the latest of their ids
    unknown: list[tuple[int, int | None]]  # times in which more may have been turned away; None: up to the next start
    disagreements: list[str]  # sentences; empty if everything adds up

    @property
    def unknown_times(self) -> list[str]:
        """The times in which nobody could count what was turned away, one sentence each."""
        return [
            f"a door was open when its process ended; what it turned away {_between(start, end)} was not counted."
            for start, end in self.unknown
        ]


def take_account(home: Home) -> Account:
    """Count everything that is sealed."""
    durable = durable_epochs(home)
    drained, pending = Counter[str](), Counter[str]()
    reasons: Counter[str] = Counter()
    for shard in range(home.settings.shards):
        manifest = Manifest(home.segments(shard))
        epoch = durable.get(shard, 0)
        drained.update(_counted(manifest.totals_of(manifest.up_to(epoch)).verdicts))
        for entry in manifest.since(epoch + 1):
            pending.update(_counted(entry.verdicts))
            if entry.verdicts.refused:
                reasons.update(_reasons_in_segment(home, entry))
    turned_away, unknown = _turned_away(home)
    letters = _dead_letters(home)
    refused_letters = {reason: count for (verdict, reason), count in letters.items() if verdict == Verdict.REFUSED}
    duplicates = letters[Verdict.ACCEPTED, Reason.DUPLICATE]
    reused = letters[Verdict.ACCEPTED, Reason.ID_REUSE]
    reasons.update(refused_letters)
    reasons[Reason.ID_REUSE] += reused
    outcomes = Outcomes(
        received=drained.total() + pending.total() + turned_away.deltas,
        accepted=drained[Verdict.ACCEPTED] - duplicates - reused,
        duplicate=drained[Verdict.DUPLICATE] + pending[Verdict.DUPLICATE] + duplicates,
        refused=drained[Verdict.REFUSED] + pending[Verdict.REFUSED] + reused,
        turned_away=turned_away.deltas,
        waiting=pending[Verdict.ACCEPTED],
    )
    return Account(
        outcomes=outcomes,
        reasons=_most_frequent(reasons),
        duplicates_at_arrival=outcomes.duplicate - duplicates,
        duplicates_at_drain=duplicates,
        turned_away=_most_frequent(turned_away.reasons),
        turned_away_producers=_producers(turned_away),
        turned_away_ids=turned_away.ids,
        unknown=unknown,
        disagreements=[
            f"{what}: the log says {expected:,}, the table has {found:,}."
            for what, expected, found in (
                ("accepted deltas in `deltas`", outcomes.accepted, _rows(home, "deltas")),
                ("refused deltas in `dead_letters`", drained[Verdict.REFUSED], sum(refused_letters.values())),
            )
            if expected != found
        ],
    )


def _turned_away(home: Home) -> tuple[Tally, list[tuple[int, int | None]]]:
    """What all shards' logs say, and when nobody could count, a process that was just killed included."""
    total, since = Tally(), list[int]()
    for shard in range(home.settings.shards):
        books = read_books(RealDisk(), home.log(shard), home.segments(shard))
        total = total.plus(books.tally)
        if books.counted_to_us is not None and read_live(home.log(shard)) is None:
            since.append(books.counted_to_us)
    return total, [*sorted(total.unknown), *((start, None) for start in since)]


def _between(start_us: int, end_us: int | None) -> str:
    return f"after {shown(start_us)}" if end_us is None else f"between {shown(start_us)} and {shown(end_us)}"


def _producers(turned_away: Tally) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for producers in turned_away.counts.values():
        counts.update(producers)
    return dict(nlargest(TOP_PRODUCERS, counts.items(), key=lambda item: (item[1], item[0])))


def _most_frequent(counts: Mapping[str, int]) -> dict[str, int]:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {str(reason): count for reason, count in ranked if count}


def _counted(verdicts: HourCounts) -> dict[str, int]:
    return {verdict: getattr(verdicts, verdict) for verdict in Verdict}


def _reasons_in_segment(home: Home, entry: Entry) -> list[str]:
    with pq.ParquetFile(home.segments(entry.shard) / entry.file) as segment:
        found: list[str] = segment.read(columns=["reason"])["reason"].drop_null().to_pylist()
    return found


def _dead_letters(home: Home) -> Counter[tuple[str, str]]:
    """(verdict in the log, reason in `dead_letters`) → number."""
    found: Counter[tuple[str, str]] = Counter()
    for partition in partitions(home.lake / "dead_letters").values():
        for file in partition.files:
            with pq.ParquetFile(file) as letters:
                rows = letters.read(columns=["verdict", "reason"])
            found.update(zip(rows["verdict"].to_pylist(), rows["reason"].to_pylist(), strict=True))
    return found


def _rows(home: Home, name: str) -> int:
    return sum(partition.rows for partition in partitions(home.lake / name).values())
