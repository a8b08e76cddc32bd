"""All five trailing windows of all entities at once, as of a minute: a pure function of the tiers (R2, R4).

Belongs here: which buckets of which tier make up a trailing window or a decayed score, as one plan. It uses only whole
buckets and minute edges, cut as in `tidemark/counts`, and no deltas. All sums are sums of integers. Does not belong
here: which versions are read, and whether they agree (`windowed_asset.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.rollups.schema import TRAILING_COUNTS, WINDOWED_COUNTS, WINDOWS
from resources.lake import TableSpec
from tidemark.counts.decay import ONE, HalfLife, fractions
from tidemark.counts.windows import Span, Window, window_pieces
from tidemark.model.ranges import sql_timestamp
from tidemark.model.timegrid import HOUR_US
from tidemark.tables.tiers import Tier

KEYS = ("namespace", "entity_id", "signal")
# A sum of many 64-bit counts times 33-bit weights needs Spark's widest integer.
WIDE = "decimal(38, 0)"


def count_windows(tiers: Mapping[Tier, DataFrame], *, as_of_us: int, half_lives: Sequence[HalfLife]) -> DataFrame:
    """One row for each entity and signal that had a delta before `as_of`."""
    parts = [_contributions(rows, tier, as_of_us, half_lives) for tier, rows in tiers.items()]
    sums = reduce(DataFrame.unionByName, parts).groupBy(*KEYS).agg(*_sums(half_lives))
    age = F.lit(as_of_us) - F.unix_micros("first_minute")
    velocities = {f"velocity_{window}": _velocity(window, age) for window in WINDOWS}
    scores = F.expr(_map_of(half_lives))
    moment = F.expr(sql_timestamp(as_of_us))
    return sums.withColumns({**velocities, "decay": scores, "as_of": moment}).select(*WINDOWED_COUNTS.names)


def spans_of(tier: Tier, as_of_us: int, half_lives: Sequence[HalfLife]) -> dict[str, list[Span]]:
    """The buckets of one tier that each trailing window, and each score, is made from."""
    found = {str(window): list(window_pieces(window, as_of_us).by_tier()) for window in WINDOWS}
    found |= {_score(half_life): list(half_life.spans(as_of_us)) for half_life in half_lives}
    return {what: [span for of, span in cut if of is tier] for what, cut in found.items()}


def _contributions(rows: DataFrame, tier: Tier, as_of_us: int, half_lives: Sequence[HalfLife]) -> DataFrame:
    """What each bucket of a tier adds to each trailing window and score; null where it adds nothing."""
    spec, cuts = TRAILING_COUNTS[tier], spans_of(tier, as_of_us, half_lives)
    if tier is Tier.MINUTE:
        rows = rows.withColumns({"first_minute": F.col("bucket_start"), "lowest_minute": F.col("count")})
    columns: dict[str, Column] = {}
    for window in WINDOWS:
        is_in = F.expr(_within("bucket_start", cuts[window]))
        measures = [f"{name}_{window}" for name in ("count", "weight_sum")]
        columns |= {name: F.when(is_in, F.col(name.removesuffix(f"_{window}"))) for name in measures}
    is_ever = F.expr(_within("bucket_start", cuts[Window.ALL]))
    columns["deltas_all"] = F.when(is_ever, F.col("deltas"))
    columns |= {name: F.when(is_ever, F.col(name)) for name in ("first_minute", "lowest_minute")}
    for each in half_lives:
        is_in = F.expr(_within("bucket_start", cuts[_score(each)]))
        columns[_score(each)] = F.when(is_in, F.expr(_decayed(each, as_of_us)))
    return rows.where(_read(spec, [span for spans in cuts.values() for span in spans])).select(
        *KEYS, *(column.alias(name) for name, column in columns.items())
    )


def _sums(half_lives: Sequence[HalfLife]) -> list[Column]:
    counts = [f"{name}_{window}" for window in WINDOWS for name in ("count", "weight_sum")]
    return [
        *(F.coalesce(F.sum(name), F.lit(0)).cast("bigint").alias(name) for name in (*counts, "deltas_all")),
        *(F.min(name).alias(name) for name in ("first_minute", "lowest_minute")),
        *(F.coalesce(F.sum(_score(each)), F.lit(0).cast(WIDE)).alias(_score(each)) for each in half_lives),
    ]


def _velocity(window: Window, age: Column) -> Column:
    """The same as `tidemark.counts.windows.velocity`, bit for bit."""
    length_us = window.length_us
    span = age if length_us is None else F.least(F.lit(length_us), age)
    return F.col(f"count_{window}").cast("double") / (span.cast("double") / F.lit(float(HOUR_US)))


def _decayed(half_life: HalfLife, as_of_us: int) -> str:
    """SQL: a bucket's count times its weight, both integers. Buckets are older than `as_of`, so no age is negative."""
    weights = ", ".join(f"{weight}L" for weight in fractions(half_life.steps))
    last_us = half_life.end_us(as_of_us) - 1
    age = f"(({last_us}L - unix_micros(bucket_start)) div {half_life.step.width_us}L)"
    weight = (
        f"shiftright(element_at(array({weights}), CAST({age} % {half_life.steps}L AS INT) + 1), "
        f"CAST({age} div {half_life.steps}L AS INT))"
    )
    return f"CAST(CAST(count AS DECIMAL(20, 0)) * CAST({weight} AS DECIMAL(11, 0)) AS {WIDE})"


def _map_of(half_lives: Sequence[HalfLife]) -> str:
    """SQL: the scores by name. Dividing a float by a power of two is exact."""
    pairs = (f"'{each.name}', CAST(`{_score(each)}` AS DOUBLE) / {float(ONE)!r}D" for each in half_lives)
    return f"CAST(map({', '.join(pairs)}) AS map<string, double>)"


def _score(half_life: HalfLife) -> str:
    return f"decay_{half_life.name}"


def _read(spec: TableSpec, spans: Sequence[Span]) -> str:
    """SQL: the buckets, and the partitions that hold them, so that no other file is opened."""
    whole = [
        Span(None if span.start_us is None else spec.grain.floor(span.start_us), spec.grain.floor(span.end_us - 1) + 1)
        for span in spans
    ]
    return f"({_within(spec.partition_by, whole)}) AND ({_within('bucket_start', spans)})"


def _within(column: str, spans: Iterable[Span]) -> str:
    """SQL: the column lies in one of the spans."""
    return " OR ".join(f"({_in_span(column, span)})" for span in dict.fromkeys(spans)) or "false"


def _in_span(column: str, span: Span) -> str:
    is_before = f"{column} < {sql_timestamp(span.end_us)}"
    return is_before if span.start_us is None else f"{column} >= {sql_timestamp(span.start_us)} AND {is_before}"
