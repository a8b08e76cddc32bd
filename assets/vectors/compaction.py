"""The asset `vector_checkpoints`: states of vectors at places of their history, made when they are due (K1 to K4).

Belongs here: which versions are read, which buckets are rewritten, their records; and the removal of payloads that a
base holds (K5), which is one more commit to `deltas`. How rows are computed is in `checkpoints.py`, `bases.py` and
`assets/ingest/removal.py`; the order of the steps is in `orchestration/compact.py`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
import msgspec
from pydantic import Field

from assets.ingest.removal import GOES, bases_of, with_fate, without_payloads
from assets.ingest.schema import DELTAS, PLACE
from assets.inputs import input_of
from assets.partitions import FROM_ANY
from assets.records import Writing
from assets.requested import requested_buckets
from assets.table_asset import asset_of
from assets.trust import edited, failed, refuse_any
from assets.vectors.asset import GROUP, outside, report_buckets
from assets.vectors.bases import checkpoints_above, foreseen_bases, new_bases, plan_bases
from assets.vectors.checkpoints import kept_checkpoints, new_checkpoints, plan_checkpoints
from assets.vectors.compacted import Compacted, KeptBack, Removed
from assets.vectors.schema import BUCKET, BUCKETS, VECTOR_CHECKPOINTS
from assets.vectors.transform import KEYS, arranged, with_bucket
from resources.lake import Lake, LakeError
from resources.platform import TidemarkResource
from resources.record import Record
from resources.session import frame_of
from tidemark.model.ranges import bucket_predicate, partition_predicate
from tidemark.observe.status import read_cut
from tidemark.storage.failpoints import failpoint
from tidemark.tables import lake_files
from tidemark.tables.lineage import Input
from tidemark.tables.plans import durable_at
from tidemark.vectors.checkpoints import CompactionRules, Strategy
from tidemark.vectors.reading.reads import read_rates
from tidemark.vectors.tables import PAYLOADS_REMOVED, bucket_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


class CompactionConfig(dg.Config):
    """What a run may be asked for; what is not said is as the home's settings have it."""

    strategy: str = Field(default="", description="full_merge, tiered_merge, time_boundary or adaptive.")
    keep_recent: int | None = Field(default=None, description="How many of the last deltas tiered_merge leaves single.")
    interval_ms: int | None = Field(default=None, description="How long an interval of time_boundary is.")
    force: bool = Field(default=False, description="Compact every vector that has anything pending, due or not.")
    cut_us: int | None = Field(
        default=None,
        description="Make bases up to this moment, in microseconds: nothing before it can be read afterwards. The log "
        "must refuse older changes already; './tidemark compact --remove' does all of it in order.",
    )


@asset_of(VECTOR_CHECKPOINTS, group=GROUP, deps=[dg.AssetDep(DELTAS.name, partition_mapping=FROM_ANY)])
def vector_checkpoints(
    context: dg.AssetExecutionContext, config: CompactionConfig, tidemark: TidemarkResource
) -> dg.MaterializeResult[None]:
    """Make the checkpoints that are due in the buckets, then bases if a cut was given; one commit each."""
    run = Writing(context, tidemark.lake, tidemark.now_us)
    lake, spec, now_us = run.lake, VECTOR_CHECKPOINTS, run.clock()
    buckets, previous = requested_buckets(context), Record.latest_by_partition(context.instance, spec.name)
    with lake.lock(spec.name):
        version = input_of(lake, DELTAS.name).version
        refuse_any(context.instance, lake, spec.name, DELTAS.name)
        lake.settle(spec)
        wrong = {spec.grain.start(key) for key in {*edited(lake, spec.name), *failed(context.instance, spec.name)}}
        rules = rules_of(config, lake)
        compacted = compact(
            lake, version, rules, now_us=now_us, is_forced=config.force, buckets=buckets, wrong=wrong & {*buckets}
        )
        failpoint("compact.checkpoints")
        if config.cut_us is not None:
            compacted = make_bases(lake, version, config.cut_us, compacted)
            failpoint("compact.bases")
    more = {spec.grain.key(bucket): done.to_metadata() for bucket, done in compacted.items()}
    return report_buckets(run, spec, version, buckets, previous, more)


def rules_of(config: CompactionConfig, lake: Lake) -> CompactionRules:
    """The home's settings, with the run's own options."""
    settings = lake.home.settings.compaction
    asked: dict[str, Any] = {"keep_recent": config.keep_recent, "interval_ms": config.interval_ms}
    asked |= {"strategy": Strategy(config.strategy).value if config.strategy else None}
    known = {name: getattr(settings, name) for name in settings.__struct_fields__}
    chosen = type(settings)(**{**known, **{name: value for name, value in asked.items() if value is not None}})
    return CompactionRules.from_settings(chosen)


def compact(
    lake: Lake,
    version: int,
    rules: CompactionRules,
    *,
    now_us: int,
    is_forced: bool = False,
    buckets: Sequence[int] = range(BUCKETS),
    wrong: Collection[int] = (),
) -> dict[int, Compacted]:
    """Make the checkpoints that are due in some buckets, from `deltas` at a version; returns the results for each.

    Of `wrong` buckets only the bases are kept; their other checkpoints are made again when they are due. Hold the
    table's lock when you call this.
    """
    deltas, present = _deltas_in(lake, version, buckets), lake.read(VECTOR_CHECKPOINTS.name)
    if wrong:
        present = present.where(f"is_base OR NOT ({bucket_predicate(BUCKET, sorted(wrong))})")
    before = _bytes(lake)
    reads = frame_of(lake.spark, read_rates(lake.home.root, now_us)) if rules.strategy is Strategy.ADAPTIVE else None
    plan = plan_checkpoints(deltas, present, now_us=now_us, rules=rules, is_forced=is_forced, reads=reads)
    with _kept_at_hand(with_bucket(plan)) as plan:
        planned, done = _buckets(plan), _summary(plan)
        if touched := sorted({*planned, *wrong}):
            old = present.where(bucket_predicate(BUCKET, touched))
            rows = kept_checkpoints(plan, old, rules=rules).unionByName(new_checkpoints(plan, deltas, old))
            _replace(lake, rows, [*touched, *outside(lake, VECTOR_CHECKPOINTS, wrong)], version)
    after = _bytes(lake)
    return {
        bucket: Compacted(**done.get(bucket, {}), bytes_before=before.get(bucket, 0), bytes_after=after.get(bucket, 0))
        for bucket in buckets
    }


def make_bases(lake: Lake, version: int, cut_us: int, compacted: Mapping[int, Compacted]) -> dict[int, Compacted]:
    """Give every vector of these buckets that has deltas before the cut a base, or a later one; adds to the results.

    Hold the table's lock when you call this.
    """
    refuse_unsettled(lake, version, cut_us)
    deltas, present = _deltas_in(lake, version, [*compacted]), lake.read(VECTOR_CHECKPOINTS.name)
    with _kept_at_hand(with_bucket(plan_bases(deltas, present, cut_us=cut_us))) as plan:
        bases: dict[int, int] = {row[0]: row[1] for row in plan.where("emit").groupBy(BUCKET).count().collect()}
        if buckets := _buckets(plan):
            old = present.where(bucket_predicate(BUCKET, buckets))
            made = new_bases(plan, deltas, old, cut_us=cut_us)
            _replace(lake, checkpoints_above(plan, old).unionByName(made), buckets, version)
    after = _bytes(lake)
    return {
        bucket: msgspec.structs.replace(
            done, bases=bases.get(bucket, 0), cut_us=cut_us, bytes_after=after.get(bucket, 0)
        )
        for bucket, done in compacted.items()
    }


def _deltas_in(lake: Lake, version: int, buckets: Sequence[int]) -> "DataFrame":
    """The deltas of the vectors in some buckets, and perhaps others; for all buckets, `deltas` as it is."""
    deltas = lake.read(DELTAS.name, version)
    return deltas if {*buckets} == {*range(BUCKETS)} else deltas.where(bucket_predicate(bucket_sql("key"), buckets))


def refuse_unsettled(lake: Lake, version: int, cut_us: int) -> None:
    """Raise unless the log refuses older changes, and all that it took before are in this version of `deltas` (K4)."""
    cut = read_cut(lake.home)
    if cut is None or cut.cut_us < cut_us:
        raise LakeError(
            "The log does not refuse changes before that moment yet, so a base could miss one. Nothing was changed; "
            "use ./tidemark compact --remove, which cuts the log first."
        )
    if not cut.is_settled(durable_at(lake.home, version)):
        raise LakeError(
            "Changes from before the cut are not in the tables yet, because they are not sealed or not drained. "
            "Nothing was changed; drain first: ./tidemark drain."
        )


def foresee_removal(lake: Lake, cut_us: int) -> tuple[int, KeptBack]:
    """How many payloads a cut would remove, and which ones would stay. No row of any table changes."""
    if lake.version(DELTAS.name) is None:
        return 0, KeptBack()
    lake.settle(VECTOR_CHECKPOINTS)
    deltas, present = lake.read(DELTAS.name), lake.read(VECTOR_CHECKPOINTS.name)
    plan = plan_bases(deltas, present, cut_us=cut_us)
    going, kept_back = _weigh(deltas, foreseen_bases(plan, present, cut_us=cut_us), cut_us)
    return sum(going.values()), kept_back


def remove_payloads(lake: Lake) -> Removed:
    """Remove the payloads that bases hold from `deltas`: only hours that have any are rewritten, in one commit.

    Producers go on meanwhile. A drain waits for the table as for any other writer.
    """
    with lake.lock(DELTAS.name):
        bases, cut = bases_of(lake), read_cut(lake.home)
        if bases is None or cut is None or lake.version(DELTAS.name) is None:
            return Removed()
        deltas, path = lake.read(DELTAS.name), lake.path(DELTAS.name)
        going, kept_back = _weigh(deltas, bases, cut.cut_us)
        hours = sorted(going)
        if not hours:
            return Removed(kept_back=kept_back)
        before = lake_files.partitions(path)
        rows = deltas.where(partition_predicate(DELTAS.partition_by, hours)).transform(without_payloads, bases)
        filed = rows.repartition(DELTAS.partition_by).sortWithinPartitions(DELTAS.partition_by, *PLACE)
        lake.rewrite(DELTAS, filed, hours=hours, purpose=PAYLOADS_REMOVED)
        after = lake_files.partitions(path)
    return Removed(
        payloads=sum(going.values()),
        hours=len(hours),
        bytes_before=sum(before[hour].bytes for hour in hours),
        bytes_after=sum(after[hour].bytes for hour in hours),
        kept_back=kept_back,
    )


def _weigh(deltas: "DataFrame", bases: "DataFrame", cut_us: int) -> tuple[dict[int, int], KeptBack]:
    """Start of an hour, in microseconds → how many of its payloads go; and the number that stay, by condition."""
    from pyspark.sql import functions as F

    going, staying = dict[int, int](), Counter[str]()
    fates = with_fate(deltas, bases, cut_us).groupBy(F.unix_micros(DELTAS.partition_by), "fate").count()
    for hour, fate, count in fates.collect():
        if fate == GOES:
            going[hour] = count
        else:
            staying[fate] += count
    return going, KeptBack(**staying)


def _replace(lake: Lake, rows: "DataFrame", buckets: list[int], version: int) -> None:
    spec, made_from = VECTOR_CHECKPOINTS, Input(version, lake.known(DELTAS.name).generation)
    lake.replace(spec, arranged(rows, spec.order_by), hours=buckets, made_from=made_from)


def _buckets(plan: "DataFrame") -> list[int]:
    return sorted(row[0] for row in plan.select(BUCKET).distinct().collect())


def _summary(plan: "DataFrame") -> dict[int, dict[str, Any]]:
    """The results that a plan will have, per vector and then per bucket."""
    from pyspark.sql import functions as F

    vectors = plan.groupBy(BUCKET, *KEYS).agg(
        F.max("reason").alias("reason"),
        F.count_if("emit").alias("made"),
        F.count_if("is_stale").alias("stale"),
        F.max("pending").alias("before"),
        F.max("left").alias("after"),
    )
    # A vector that lost a checkpoint and got no new one counts only as that.
    measured = [F.sum(F.when(F.col("made") > 0, F.col(name)).otherwise(0)) for name in ("before", "after")]
    counts = [F.count_if(F.col("made") > 0), F.sum("made"), F.sum("stale")]
    rows = vectors.groupBy(BUCKET, "reason").agg(*counts, *measured).collect()
    names = ("vectors", "checkpoints", "thrown_away", "folded_before", "folded_after")
    found = dict[int, dict[str, Any]]()
    for bucket in {row[0] for row in rows}:
        own = sorted(row[1:] for row in rows if row[0] == bucket)
        found[bucket] = {name: sum(row[place] for row in own) for place, name in enumerate(names, start=1)}
        found[bucket]["reasons"] = {row[0]: row[1] for row in own if row[1]}
    return found


def _bytes(lake: Lake) -> dict[int, int]:
    return {bucket: part.bytes for bucket, part in lake_files.partitions(lake.path(VECTOR_CHECKPOINTS.name)).items()}


@contextmanager
def _kept_at_hand(plan: "DataFrame") -> "Iterator[DataFrame]":
    """Cache a plan, because it is read several times."""
    kept = plan.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
