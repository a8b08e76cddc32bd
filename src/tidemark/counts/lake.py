"""Counts from the tables, exact, without a JVM: for one entity, as of a minute, over all windows (R2, R4).

Belongs here: from a question to the few files that answer it, and the answer with its extent. An answer always equals
a count over `deltas` at the version that it names: a bucket that is behind `deltas` is not used, finer buckets or
deltas are counted instead, and the answer names the hours whose deltas were counted.

    counts = LakeCounts(Home.locate())
    counts.window("item-7", "view", Window.DAY, as_of, namespace="shop").count
    counts.windows("item-7", "view", as_of, namespace="shop").velocity[Window.DAY]
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tidemark.counts.retention import gone_before, refuse_gone
from tidemark.counts.tables import CountTable, FileOf, Tables
from tidemark.counts.windows import Span, Window, on_a_minute, velocity, window_pieces
from tidemark.log.manifest import Manifest
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import HOUR, HOUR_US, MINUTE_US, floor_to, to_us
from tidemark.shard_state.clock_reset import corrected, read_resets
from tidemark.storage.home import Home
from tidemark.tables.lake_files import quiet_database
from tidemark.tables.plans import durable_in
from tidemark.tables.tiers import DELTAS, TRAILING, Tier

if TYPE_CHECKING:
    import duckdb


class UnknownNamespaceError(TidemarkError):
    """No producer has ever sent anything in that namespace."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A count: the sum of the counts, of the weights in millionths, and the number of deltas."""

    count: int = 0
    weight_sum: int = 0
    deltas: int = 0

    def plus(self, other: "Measure") -> "Measure":
        """Both together."""
        return Measure(self.count + other.count, self.weight_sum + other.weight_sum, self.deltas + other.deltas)


class Reach(NamedTuple):
    """The basis of an answer: everything up to these epochs, at these versions."""

    versions: dict[str, int]  # table → version
    epochs: dict[int, int]  # shard → last epoch that is in `deltas`
    watermark_us: int | None  # no older signal of the namespace is expected; None while there is no watermark
    recounted_hours: tuple[int, ...]  # hours whose deltas were counted, because a rollup was behind them


class Counts(NamedTuple):
    """One signal of an entity as of a minute."""

    as_of_us: int
    windows: dict[Window, Measure]
    velocity: dict[Window, float]  # counts per hour (R4)
    first_us: int | None  # start of the minute of the first event
    hours: tuple[tuple[int, int], ...]  # the last day: start and count of each hour, cut to the day at both ends
    reach: Reach


class _Row(NamedTuple):
    signal: str
    at_us: int
    first_us: int
    measure: Measure


# The tables that trailing counts are made of, and `deltas` for what is behind it.
_Source = Tier | None
_Plan = dict[_Source, list[Span]]


class LakeCounts:
    """Answers from the tables of one home, as they are at each question. For one thread at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @cached_property
    def _database(self) -> "duckdb.DuckDBPyConnection":
        return quiet_database()

    def window(
        self, entity: str, signal: str, window: Window | str, as_of: datetime | int, *, namespace: str
    ) -> Measure:
        """The count of one window: the deltas with `as_of - window <= event_ts < as_of`.

        `as_of` is an aware datetime or microseconds since 1970, on a minute.
        """
        wanted, question = Window(window), self._ask(namespace, entity, signal, as_of)
        return question.sums([wanted]).get(signal, {}).get(wanted, Measure())

    def windows(self, entity: str, signal: str, as_of: datetime | int, *, namespace: str) -> Counts:
        """All five windows of one signal, velocities, and the basis of the answer."""
        question = self._ask(namespace, entity, signal, as_of)
        return question.answers(list(Window)).get(signal) or question.nothing()

    def signals(self, entity: str, as_of: datetime | int, *, namespace: str) -> dict[str, Counts]:
        """The same for every signal that the entity ever had, by name; empty if there is no such entity."""
        return self._ask(namespace, entity, None, as_of).answers(list(Window))

    def namespaces(self) -> list[str]:
        """Namespaces that are declared, or of which deltas have arrived."""
        found = {*self._home.settings.namespaces}
        for shard in range(self._home.settings.shards):
            if entry := Manifest(self._home.segments(shard)).last:
                found |= {stream.partition("/")[0] for stream in entry.watermarks}
        deltas = CountTable(self._home, DELTAS)
        files = [file.path for start in deltas.starts for file in deltas.files[start]]
        if files:
            query = "SELECT DISTINCT namespace FROM read_parquet($1, hive_partitioning = false)"
            found |= {name for (name,) in self._database.execute(query, [files]).fetchall()}
        return sorted(found)

    def refuse_unknown(self, namespace: str) -> None:
        """Raise for an unknown namespace, with an error that lists the known ones."""
        known = self.namespaces()
        if namespace not in known:
            shown = f"Known here: {', '.join(known)}." if known else "Nothing is in the tables yet: ./tidemark drain."
            raise UnknownNamespaceError(f"There is no namespace {namespace!r}. {shown}")

    def _ask(self, namespace: str, entity: str, signal: str | None, as_of: datetime | int) -> "_Question":
        as_of_us = on_a_minute(to_us(as_of) if isinstance(as_of, datetime) else as_of)
        return _Question(self._home, self._database, namespace, entity, signal, as_of_us)


class _Question:
    """One question, with the tables as they were when it came."""

    def __init__(
        self,
        home: Home,
        database: "duckdb.DuckDBPyConnection",
        namespace: str,
        entity: str,
        signal: str | None,
        as_of_us: int,
    ) -> None:
        self._home, self._database = home, database
        self._namespace, self._entity, self._signal = namespace, entity, signal
        self._as_of_us = as_of_us
        self._gone_before = gone_before(home)
        self._tables = Tables(home, self._gone_before)
        self._rows: dict[tuple[_Source, int], list[_Row]] = {}  # by source and partition: each is read once
        self._recounted: set[int] = set()

    def sums(self, windows: Sequence[Window]) -> dict[str, dict[Window, Measure]]:
        """Signal → window → its count."""
        plans = {window: self._plan_of(window) for window in windows}
        self._read(plans.values())
        found: dict[str, dict[Window, Measure]] = defaultdict(dict)
        for window, plan in plans.items():
            for row in self._rows_of(plan):
                found[row.signal][window] = found[row.signal].get(window, Measure()).plus(row.measure)
        return found

    def answers(self, windows: Sequence[Window]) -> dict[str, Counts]:
        """Signal → its whole answer."""
        sums, hours, firsts = self.sums(windows), self._hours(), self._firsts()
        reach, as_of_us = self._reach(), self._as_of_us
        answers = {}
        for signal, first_us in sorted(firsts.items()):
            counted = {window: sums[signal].get(window, Measure()) for window in windows}
            speeds = {window: velocity(each.count, window, as_of_us, first_us) for window, each in counted.items()}
            answers[signal] = Counts(as_of_us, counted, speeds, first_us, self._bars(hours.get(signal, {})), reach)
        return answers

    def nothing(self) -> Counts:
        """The answer for a signal that never happened."""
        counted, speeds = dict.fromkeys(Window, Measure()), dict.fromkeys(Window, 0.0)
        return Counts(self._as_of_us, counted, speeds, None, self._bars({}), self._reach())

    # From windows to buckets that are up to date.

    def _plan_of(self, window: Window) -> _Plan:
        pieces = window_pieces(window, self._as_of_us)
        refuse_gone(window, self._as_of_us, self._gone_before)
        plan: _Plan = defaultdict(list)
        for tier, span in pieces.by_tier():
            self._add(plan, tier, span)
        return plan

    def _add(self, plan: _Plan, tier: Tier, span: Span) -> None:
        for source, part in self._tables.up_to_date(tier, span):
            plan[source].append(part)
            if source is None:
                self._recounted.update(self._tables.deltas.starts_in(part, HOUR))

    # From buckets to rows.

    def _read(self, plans: Iterable[_Plan]) -> None:
        """Read the partitions that are needed and not read yet, a query for each table."""
        for source in (*TRAILING, None):
            spans = [span for plan in plans for span in plan.get(source, ())]
            wanted = [start for start in self._partitions(source, spans) if (source, start) not in self._rows]
            if wanted:
                self._fetch(source, wanted)

    def _partitions(self, source: _Source, spans: Sequence[Span]) -> list[int]:
        """Partitions that have files, overlap a span, and may be relied on."""
        moment = self._tables.deltas if source is None else self._tables.tiers[source]
        grain = HOUR if source is None else source.partition_grain
        behind = frozenset[int]() if source is None else self._tables.behind[source]
        wanted = {start for span in spans for start in moment.starts_in(span, grain)}
        return sorted(wanted - behind)

    def _fetch(self, source: _Source, partitions: Sequence[int]) -> None:
        table = self._tables.deltas if source is None else self._tables.tiers[source]
        files = [file.path for start in partitions for file in table.files[start] if self._may_hold(file)]
        self._rows |= {(source, start): [] for start in partitions}
        grain = HOUR if source is None else source.partition_grain
        for signal, at_us, first_us, *measure in self._query(source, files) if files else ():
            row = _Row(signal, at_us, floor_to(first_us, MINUTE_US), Measure(*measure))
            self._rows[source, grain.floor(at_us)].append(row)

    def _may_hold(self, file: FileOf) -> bool:
        return file.namespaces.may_hold(self._namespace) and file.entities.may_hold(self._entity)

    def _query(self, source: _Source, files: list[str]) -> list[tuple[str, int, int, int, int, int]]:
        """Signal, time, first minute and measures of the entity's rows in these files."""
        signal, entity, at, measures = (
            ("signal.signal", "signal.entity_id", "event_ts", "signal.count, signal.weight_millionths, 1")
            if source is None
            else ("signal", "entity_id", "bucket_start", "count, weight_sum, deltas")
        )
        first = at if source in (Tier.MINUTE, None) else "first_minute"
        values: list[object] = [files, self._namespace, self._entity]
        query = (
            f"SELECT {signal}, epoch_us({at}), epoch_us({first}), {measures} "
            f"FROM read_parquet($1, hive_partitioning = false) WHERE namespace = $2 AND {entity} = $3"
        )
        if source is None:
            query += " AND kind = 'signal'"
        if self._signal is not None:
            query, values = f"{query} AND {signal} = $4", [*values, self._signal]
        return self._database.execute(query, values).fetchall()

    def _rows_of(self, plan: _Plan) -> Iterable[_Row]:
        for source, spans in plan.items():
            for start in self._partitions(source, spans):
                for row in self._rows[source, start]:
                    if any(span.holds(row.at_us) for span in spans):
                        yield row

    # The rest of an answer.

    def _hours(self) -> dict[str, dict[int, int]]:
        """Signal → hour → count, over the last day; the hours at its ends are cut to it."""
        plan: _Plan = defaultdict(list)
        for tier, span in window_pieces(Window.DAY, self._as_of_us).by_tier():
            if self._tables.is_gone(Tier.HOUR, span.start_us or 0):
                return {}
            self._add(plan, Tier.HOUR if tier is Tier.DAY else tier, span)
        self._read([plan])
        found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for row in self._rows_of(plan):
            found[row.signal][floor_to(row.at_us, HOUR_US)] += row.measure.count
        return found

    def _bars(self, hours: dict[int, int]) -> tuple[tuple[int, int], ...]:
        first = floor_to(self._as_of_us - (Window.DAY.length_us or 0), HOUR_US)
        return tuple((start, hours.get(start, 0)) for start in range(first, self._as_of_us, HOUR_US))

    def _firsts(self) -> dict[str, int]:
        """Signal → the minute of its first event before `as_of`, which every bucket stores for itself."""
        plan, found = self._plan_of(Window.ALL), dict[str, int]()
        self._read([plan])
        for row in self._rows_of(plan):
            found[row.signal] = min(found.get(row.signal, row.first_us), row.first_us)
        return found

    def _reach(self) -> Reach:
        epochs = durable_in(self._home, self._tables.deltas)
        return Reach(
            versions=self._tables.versions,
            epochs=epochs,
            watermark_us=self._watermark(epochs),
            recounted_hours=tuple(sorted(self._recounted)),
        )

    def _watermark(self, epochs: dict[int, int]) -> int | None:
        """The least over the shards of the stream's watermark in their last segment in `deltas` (T2)."""
        stream, found, resets = f"{self._namespace}/signal", list[int](), read_resets(self._home)
        for shard, epoch in epochs.items():
            if entry := Manifest(self._home.segments(shard)).up_to(epoch):
                watermarks = corrected(entry, resets).watermarks
                found += [watermarks[stream]] if stream in watermarks else []
        return min(found, default=None)
