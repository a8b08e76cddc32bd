"""The assets `vectors` and `vector_conflicts`: every vector's current state, and edits that did not know of each other.

Belongs here: which versions are read, which part of a table is rewritten, and its record. How rows are computed is in
`job.py` and `conflicts.py`, how new deltas are found in `new_deltas.py`.

Both tables are folded on, bucket by bucket: a run folds its requested buckets in one Spark job and one commit, and each
bucket gets its own record. A bucket without a reliable record is folded from the start; that gives the same rows (O2).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.ingest.schema import DELTAS
from assets.inputs import input_of
from assets.partitions import FROM_ANY
from assets.records import Writing
from assets.requested import report, requested_buckets
from assets.table_asset import asset_of
from assets.trust import refuse_any
from assets.vectors.conflicts import clocked_vectors, find_conflicts
from assets.vectors.job import folded_files
from assets.vectors.new_deltas import Covered, bucket_states, covered_epochs, names_parents
from assets.vectors.records import bucket_records
from assets.vectors.schema import BUCKET, VECTOR_CONFLICTS, VECTORS
from assets.vectors.transform import (
    KEYS,
    arranged,
    new_in_buckets,
    parented_vectors,
    untouched,
    vector_deltas,
    with_bucket,
)
from assets.watermarks import record_watermarks
from resources.lake import Lake, TableSpec
from resources.platform import TidemarkResource
from resources.record import Record
from tidemark.model.ranges import bucket_predicate
from tidemark.storage.failpoints import failpoint
from tidemark.tables.lineage import Input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "vectors"
# Writes buckets of a table from `deltas` at a version: bucket → what it covers already, None if that is not known.
Write = Callable[[Lake, int, Mapping[int, Covered]], None]


@asset_of(VECTORS, group=GROUP, deps=[dg.AssetDep(DELTAS.name, partition_mapping=FROM_ANY)])
def vectors(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
    """Fold the new deltas into their vectors."""
    return _materialize(context, tidemark, VECTORS, write_vectors)


@asset_of(VECTOR_CONFLICTS, group=GROUP, deps=[dg.AssetDep(DELTAS.name, partition_mapping=FROM_ANY)])
def vector_conflicts(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
    """Compare the clocks of the vectors that have new deltas."""
    return _materialize(context, tidemark, VECTOR_CONFLICTS, write_conflicts)


def _materialize(
    context: dg.AssetExecutionContext, tidemark: TidemarkResource, spec: TableSpec, write: Write
) -> dg.MaterializeResult[None]:
    lake, buckets, run = tidemark.lake, requested_buckets(context), Writing(context, tidemark.lake, tidemark.now_us)
    previous = Record.latest_by_partition(context.instance, spec.name)
    with lake.lock(spec.name):
        version = input_of(lake, DELTAS.name).version
        refuse_any(context.instance, lake, spec.name, DELTAS.name)
        lake.settle(spec)
        states = bucket_states(lake.home, spec, previous, version)
        write(lake, version, covered_epochs(lake.home, states, buckets))
        # Other buckets that are not due have no new deltas: they count as made from this version, too, without a run.
        resting = [bucket for bucket, state in states.items() if not state.is_due]
        lake.lineage_file(spec.name).record(
            lake.path(spec.name), made_from=_made_from(lake, version), made={*buckets, *resting}
        )
    failpoint("rollup.committed")
    return report_buckets(run, spec, version, buckets, previous)


def report_buckets(
    run: Writing,
    spec: TableSpec,
    version: int,
    buckets: Sequence[int],
    previous: Mapping[str, Record],
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> dg.MaterializeResult[None]:
    """Record what a run has made of these buckets from a version of `deltas`; `more` is metadata by key."""
    records = bucket_records(run, spec, version, buckets, previous)
    report(run.context, records, more)
    record_watermarks(run.lake.home.plans, records)
    failpoint("record.logged")
    return dg.MaterializeResult()


def write_vectors(lake: Lake, version: int, covered: Mapping[int, Covered]) -> None:
    """Fold the deltas that buckets do not hold yet, or all deltas of a bucket."""
    anew = [bucket for bucket, epochs in covered.items() if epochs is None]
    lake.replace_files(
        VECTORS,
        lambda: folded_files(lake, version, covered),
        anew=[*anew, *outside(lake, VECTORS, anew)],
        made_from=_made_from(lake, version),
        made=list(covered),
    )


def write_conflicts(lake: Lake, version: int, covered: Mapping[int, Covered]) -> None:
    """Compare the clocks of the vectors that have new deltas, or of all vectors in a bucket."""
    deltas = lake.read(DELTAS.name, version).transform(vector_deltas)
    anew = sorted(bucket for bucket, epochs in covered.items() if epochs is None)
    touched = _touched_with_clocks(deltas, covered).persist()
    try:
        going_on = sorted({row[0] for row in touched.select(BUCKET).distinct().collect()} - {*anew})
        if not anew and not going_on:
            return
        # If buckets are folded from the start, all files are read anyway, and they show parents without a Spark job.
        rows = compared(deltas, touched, may_have_parents=not anew or names_parents(lake.home, version))
        if going_on:
            old = lake.read(VECTOR_CONFLICTS.name).where(bucket_predicate(BUCKET, going_on))
            rows = untouched(old, touched).unionByName(rows)
        filed, buckets = arranged(rows, VECTOR_CONFLICTS.order_by), [*anew, *going_on]
        buckets += outside(lake, VECTOR_CONFLICTS, anew)
        lake.replace(VECTOR_CONFLICTS, filed, hours=buckets, made_from=_made_from(lake, version))
    finally:
        touched.unpersist()


def outside(lake: Lake, spec: TableSpec, buckets: Collection[int]) -> list[int]:
    """Invalid bucket numbers under which another process has put rows; they go when these buckets are rewritten."""
    return [number for number in lake.edits(spec.name) if number >= spec.buckets and number % spec.buckets in buckets]


def _made_from(lake: Lake, version: int) -> Input:
    return Input(version, lake.known(DELTAS.name).generation)


def known_parented(deltas: "DataFrame") -> "DataFrame | None":
    """The vectors that have parents; None if no vector has, so that no rows are shuffled for it."""
    found = parented_vectors(deltas)
    return None if found.isEmpty() else found


def compared(deltas: "DataFrame", chosen: "DataFrame", *, may_have_parents: bool = True) -> "DataFrame":
    """Rows of `vector_conflicts` for some vectors, from all of their deltas."""
    of_chosen = deltas.join(chosen, list(KEYS), how="left_semi")
    return find_conflicts(of_chosen, parented=known_parented(of_chosen) if may_have_parents else None)


def _touched_with_clocks(deltas: "DataFrame", covered: Mapping[int, Covered]) -> "DataFrame":
    """The vectors with clocks in the given buckets that have deltas which their bucket does not cover."""
    new = with_bucket(deltas).where(new_in_buckets(covered)).select(*KEYS, BUCKET).distinct()
    return new.join(clocked_vectors(deltas), list(KEYS), how="left_semi")
