"""The tables behind the counters in memory: initial sums, hours at the far edge, and duplicates that the drain found.

Belongs here: reading all entities at once, without a JVM, as of the epochs that `deltas` has. A partition of a rollup
that is behind is not used: the finer table is read instead, in the end the deltas of the hour, so that everything read
here is as of the same epochs. `counts/tables.py` says which partitions are behind; `counts/lake.py` reads one entity.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidemark.counts.retention import gone_before
from tidemark.counts.tables import Tables
from tidemark.counts.warm.arrivals import rows_of
from tidemark.counts.warm.buckets import Numbers, Rows, minutes_of
from tidemark.counts.warm.names import Names
from tidemark.counts.warm.state import LENGTHS, Taken
from tidemark.counts.windows import Span, pieces
from tidemark.model.deltas import Kind, Reason, Verdict
from tidemark.model.timegrid import HOUR, HOUR_US, MINUTE_US, Grain
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.plans import durable_in
from tidemark.tables.tiers import Tier

DEAD_LETTERS = "dead_letters"
_FROM_DELTAS = (
    "SELECT namespace, signal.entity_id AS entity_id, signal.signal AS signal, epoch_us(event_ts) AS at_us, "
    f"epoch_us(event_ts) AS first_us, signal.count AS count FROM {{files}} WHERE kind = '{Kind.SIGNAL.value}'"
)
_FROM_TIER = (
    "SELECT namespace, entity_id, signal, epoch_us(bucket_start) AS at_us, epoch_us({first}) AS first_us, count "
    "FROM {files} WHERE true"
)


class Beginning(NamedTuple):
    """The counts before a minute, by row: once for each range in which windows differ, and the first minute."""

    rows: Rows
    ranges: Numbers  # place of the shortest window that has it: it is in all longer ones, too
    counts: Numbers
    firsts: Numbers  # minutes


class _DeadSignal(msgspec.Struct):
    """A signal in a dead letter."""

    entity_id: str
    signal: str
    count: int


class LakeRollups:
    """The tables of a home at one time: that of `deltas`, whose epochs are `covered`.

    With `only`, a namespace and a signal, everything else is left out.
    """

    def __init__(self, home: Home, only: tuple[str, str] | None = None) -> None:
        self._home, self._only = home, only
        self._tables = Tables(home, gone_before(home))
        self.covered = durable_in(home, self._tables.deltas)

    def hour(self, hour: int, names: Names) -> tuple[Rows, Numbers, Numbers]:
        """Rows, minutes and counts of an hour, given by its first minute."""
        start_us = hour * MINUTE_US
        source = None if start_us in self._tables.behind[Tier.MINUTE] else Tier.MINUTE
        found = self._query(source, [start_us], "SELECT * FROM ({rows})")
        if found is None:
            return (np.empty(0, np.int64),) * 3
        rows = rows_of(names, *(_column(found, name) for name in ("namespace", "signal", "entity_id")))
        return rows, minutes_of(np.asarray(_column(found, "at_us"))), np.asarray(_column(found, "count"))

    def hours_from(self, minute: int) -> list[int]:
        """The hours from a minute on that have counts, each by its first minute."""
        starts = {*self._tables.deltas.files, *self._tables.tiers[Tier.MINUTE].files}
        return sorted(start // MINUTE_US for start in starts if start + HOUR_US > minute * MINUTE_US)

    def beginning(self, head: int, names: Names) -> Beginning:
        """Everything before a minute, over all rows."""
        spans = self._spans(head)
        found = [self._sums(source, ranges, names) for source, ranges in spans.items() if any(ranges.values())]
        return Beginning(*(np.concatenate(column) for column in zip(*found, _NOTHING, strict=True)))

    def taken_back(self, covered: Mapping[int, int], names: Names) -> tuple[Taken, bool]:
        """Signals that the log accepted and the drain moved to dead letters, of epochs above `covered` covered here.

        Also whether one of them was another delta with the identity of an earlier one: then it may be the only one
        that its entity had of that signal, and only the tables have the entity's true first minute.
        """
        table = lake_files.open_table(self._home.lake / DEAD_LETTERS)
        found: list[tuple[str, str, str, int, int, int, int]] = []
        is_reuse = False
        if table is not None and self.covered != covered:
            is_new = " OR ".join(
                f"(shard = {shard} AND epoch > {covered.get(shard, 0)} AND epoch <= {epoch})"
                for shard, epoch in self.covered.items()
            )
            query = (
                "SELECT namespace, epoch_us(event_ts), shard, epoch, raw, reason FROM letters "
                f"WHERE verdict = '{Verdict.ACCEPTED.value}' AND kind = '{Kind.SIGNAL.value}' AND ({is_new})"
            )
            with lake_files.quiet_database() as database:
                database.register("letters", table.to_pyarrow_dataset())
                letters = database.execute(query).fetchall()
            for namespace, at_us, shard, epoch, raw, reason in letters:
                dead = msgspec.json.decode(raw, type=_DeadSignal)
                found.append((namespace, dead.signal, dead.entity_id, at_us // MINUTE_US, dead.count, shard, epoch))
                is_reuse = is_reuse or reason == Reason.ID_REUSE
        texts = [pa.array([each[place] for each in found], pa.string()) for place in range(3)]
        numbers = [np.array([each[place] for each in found], np.int64) for place in range(3, 7)]
        return Taken(rows_of(names, *texts), *numbers), is_reuse

    # From ranges of time to spans of buckets that are up to date.

    def _spans(self, head: int) -> "dict[Tier | None, dict[int, list[Span]]]":
        """Source → place of the shortest window → the buckets to read."""
        found: dict[Tier | None, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
        end = head
        for place, length in enumerate(LENGTHS):
            start = None if length is None else head - length
            cut = pieces(None if start is None else start * MINUTE_US, end * MINUTE_US)
            for tier, span in cut.by_tier():
                for source, part in self._tables.up_to_date(tier, span):
                    found[source][place].append(part)
            end = head if start is None else start
        return found

    # From spans to sums.

    def _sums(self, source: Tier | None, ranges: Mapping[int, Sequence[Span]], names: Names) -> Beginning:
        grain = HOUR if source is None else source.partition_grain
        joined = {place: _joined(spans) for place, spans in ranges.items()}
        wanted = [span for spans in joined.values() for span in spans]
        found = self._query(
            source,
            [start for start in self._partitions(source) if any(_touches(span, start, grain) for span in wanted)],
            "SELECT namespace, entity_id, signal, place, sum(count)::BIGINT AS count, min(first_us) AS first_us "
            f"FROM (SELECT *, CASE {_cases(joined)} END AS place FROM ({{rows}})) WHERE place IS NOT NULL GROUP BY ALL",
        )
        if found is None:
            return _NOTHING
        rows = rows_of(names, *(_column(found, name) for name in ("namespace", "signal", "entity_id")))
        numbers = [np.asarray(_column(found, name), np.int64) for name in ("place", "count", "first_us")]
        return Beginning(rows, numbers[0], numbers[1], minutes_of(numbers[2]))

    def _partitions(self, source: Tier | None) -> list[int]:
        """Partitions that have files and are up to date."""
        if source is None:
            return list(self._tables.deltas.files)
        behind = self._tables.behind[source]
        return [start for start in self._tables.tiers[source].files if start not in behind]

    def _query(self, source: Tier | None, partitions: Sequence[int], query: str) -> pa.Table | None:
        table = self._tables.deltas if source is None else self._tables.tiers[source]
        files = [file.path for start in partitions for file in table.files.get(start, ())]
        if not files:
            return None
        read = "read_parquet($1, hive_partitioning = false)"
        first = "bucket_start" if source is Tier.MINUTE else "first_minute"
        rows = (_FROM_DELTAS if source is None else _FROM_TIER).format(files=read, first=first)
        if self._only is not None:
            rows += f" AND namespace = $2 AND {'signal.signal' if source is None else 'signal'} = $3"
        with lake_files.quiet_database() as database:
            return database.execute(query.format(rows=rows), [files, *(self._only or ())]).to_arrow_table()


_NOTHING = Beginning(*(np.empty(0, np.int64) for _ in Beginning._fields))


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Spans of one tier, with adjacent ones joined: hours that are behind often follow each other."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start_us is not None, span.start_us or 0, span.end_us)):
        if joined and span.start_us is not None and span.start_us <= joined[-1].end_us:
            joined[-1] = Span(joined[-1].start_us, max(joined[-1].end_us, span.end_us))
        else:
            joined.append(span)
    return joined


def _touches(span: Span, start_us: int, grain: Grain) -> bool:
    return (span.start_us is None or span.start_us < grain.next(start_us)) and start_us < span.end_us


def _cases(ranges: Mapping[int, Sequence[Span]]) -> str:
    return " ".join(
        f"WHEN at_us < {span.end_us}"
        + ("" if span.start_us is None else f" AND at_us >= {span.start_us}")
        + f" THEN {place}"
        for place, spans in ranges.items()
        for span in spans
    )


def _column(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()
