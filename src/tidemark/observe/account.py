"""The account: where every delta went.

Belongs here: received = accepted + duplicate + refused + waiting, from the manifests' verdicts and, for duplicates that
only the drain could find, from `dead_letters`; and whether the tables agree. Read by delta-rs: no JVM.
"""

from collections import Counter

import pyarrow.parquet as pq
from msgspec import Struct

from tidemark.log.manifest import Entry, HourCounts, Manifest
from tidemark.model.deltas import Reason, Verdict
from tidemark.storage.home import Home
from tidemark.tables.lake_files import partitions
from tidemark.tables.plans import durable_epochs


class Outcomes(Struct, frozen=True):
    """How many received deltas had each outcome; the outcomes are disjoint and add up."""

    received: int  # deltas in numbered writes; a retry is not received again
    accepted: int  # in `deltas`
    duplicate: int  # found at arrival or by the drain
    refused: int  # in `dead_letters`, or on their way there, each with its reason
    waiting: int  # accepted, sealed and not drained yet: in `deltas` soon, unless the drain finds a duplicate


class Account(Struct, frozen=True):
    """The outcomes, the reasons of refusals, where duplicates were found, and whether the tables agree."""

    outcomes: Outcomes
    reasons: dict[str, int]  # of the refused ones, most frequent first
    duplicates_at_arrival: int
    duplicates_at_drain: int
    disagreements: list[str]  # sentences; empty if everything adds up


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
    letters = _dead_letters(home)
    refused_letters = {reason: count for (verdict, reason), count in letters.items() if verdict == Verdict.REFUSED}
    duplicates = letters[Verdict.ACCEPTED, Reason.DUPLICATE]
    reused = letters[Verdict.ACCEPTED, Reason.ID_REUSE]
    reasons.update(refused_letters)
    reasons[Reason.ID_REUSE] += reused
    outcomes = Outcomes(
        received=drained.total() + pending.total(),
        accepted=drained[Verdict.ACCEPTED] - duplicates - reused,
        duplicate=drained[Verdict.DUPLICATE] + pending[Verdict.DUPLICATE] + duplicates,
        refused=drained[Verdict.REFUSED] + pending[Verdict.REFUSED] + reused,
        waiting=pending[Verdict.ACCEPTED],
    )
    return Account(
        outcomes=outcomes,
        reasons={
            str(reason): count
            for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
            if count
        },
        duplicates_at_arrival=outcomes.duplicate - duplicates,
        duplicates_at_drain=duplicates,
        disagreements=[
            f"{what}: the log says {expected:,}, the table has {found:,}."
            for what, expected, found in (
                ("accepted deltas in `deltas`", outcomes.accepted, _rows(home, "deltas")),
                ("refused deltas in `dead_letters`", drained[Verdict.REFUSED], sum(refused_letters.values())),
            )
            if expected != found
        ],
    )


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
