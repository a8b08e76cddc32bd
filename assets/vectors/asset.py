"""The assets `vectors` and `vector_conflicts`: what every vector is now, and which edits did not know of each other.

Belongs here: which versions are read, what of a table is written anew, and its record. How rows are computed is in
`job.py` and `conflicts.py`, what is new in `new_deltas.py`.

Both tables are folded on: from the vectors that have new deltas follow the buckets that are written anew. Without a
record that can be relied on, everything is folded; that gives the same rows (O2).
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import dagster as dg

from assets.ingest.schema import DELTAS
from assets.inputs import input_of
from assets.metadata import KINDS, OWNERS, data_version_tags, table_metadata
from assets.trust import refuse_any_edit, refuse_any_wrong
from assets.vectors.conflicts import clocked_vectors, find_conflicts
from assets.vectors.job import folded_files
from assets.vectors.new_deltas import covered_epochs, names_parents
from assets.vectors.records import last_record, vector_record
from assets.vectors.schema import BUCKET, VECTOR_CONFLICTS, VECTORS
from assets.vectors.transform import (
    KEYS,
    arranged,
    new_deltas,
    parented_vectors,
    untouched,
    vector_deltas,
    with_bucket,
)
from assets.watermarks import record_watermarks
from resources.lake import Lake, TableSpec
from resources.platform import TidemarkResource
from tidemark.model.ranges import bucket_predicate
from tidemark.storage.failpoints import failpoint
from tidemark.tables.lineage import Input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "vectors"
# Writes a table from `deltas` at a version; `covered` is what it holds already, none if that is not known.
Write = Callable[[Lake, int, dict[int, int] | None], None]


@dg.asset(
    deps=[DELTAS.name],
    group_name=GROUP,
    kinds=KINDS,
    owners=OWNERS,
    description=VECTORS.description,
    metadata=table_metadata(VECTORS),
)
def vectors(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
    """Fold what is new into the vectors that it is about."""
    return _materialize(context, tidemark, VECTORS, write_vectors)


@dg.asset(
    deps=[DELTAS.name],
    group_name=GROUP,
    kinds=KINDS,
    owners=OWNERS,
    description=VECTOR_CONFLICTS.description,
    metadata=table_metadata(VECTOR_CONFLICTS),
)
def vector_conflicts(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
    """Compare the clocks of the vectors that have new deltas."""
    return _materialize(context, tidemark, VECTOR_CONFLICTS, write_conflicts)


def _materialize(
    context: dg.AssetExecutionContext, tidemark: TidemarkResource, spec: TableSpec, write: Write
) -> dg.MaterializeResult[None]:
    started, lake = time.monotonic(), tidemark.lake
    previous = last_record(context.instance, spec.name)
    with lake.lock(spec.name):
        version = input_of(lake, DELTAS.name).version
        refuse_any_edit(lake, spec.name, DELTAS.name)
        refuse_any_wrong(context.instance, spec.name, DELTAS.name)
        lake.settle(spec)
        write(lake, version, covered_epochs(lake.home, spec, previous, version))
    failpoint("rollup.committed")
    duration_ms = round((time.monotonic() - started) * 1000)
    record = vector_record(lake, spec, version, previous, duration_ms=duration_ms, now_us=tidemark.now_us())
    record_watermarks(lake.home.plans, [record])
    failpoint("record.logged")
    return dg.MaterializeResult(metadata=record.to_metadata(), tags=data_version_tags(record))


def write_vectors(lake: Lake, version: int, covered: dict[int, int] | None) -> None:
    """Fold everything, or go on from what is covered."""
    made_from = Input(version, lake.known(DELTAS.name).generation)
    lake.replace_files(
        VECTORS, lambda: folded_files(lake, version, covered), made_from=made_from, is_whole=covered is None
    )


def write_conflicts(lake: Lake, version: int, covered: dict[int, int] | None) -> None:
    """Compare all clocks, or those of the vectors that have new deltas."""
    deltas = lake.read(DELTAS.name, version).transform(vector_deltas)
    made_from = Input(version, lake.known(DELTAS.name).generation)
    spec = VECTOR_CONFLICTS
    if covered is None:
        rows = find_conflicts(deltas, parented=_all_parented(lake, deltas, version))
        lake.replace(spec, arranged(rows, spec.order_by), hours=None, made_from=made_from)
        return
    touched = _touched_with_clocks(deltas, covered).persist()
    try:
        buckets = sorted(row[0] for row in touched.select(BUCKET).distinct().collect())
        if not buckets:
            return
        old = lake.read(spec.name).where(bucket_predicate(BUCKET, buckets))
        rows = untouched(old, touched).unionByName(compared(deltas, touched))
        lake.replace(spec, arranged(rows, spec.order_by), hours=buckets, made_from=made_from)
    finally:
        touched.unpersist()


def known_parented(deltas: "DataFrame") -> "DataFrame | None":
    """The vectors that have parents; none if no vector has, so that nothing is brought together for it."""
    found = parented_vectors(deltas)
    return None if found.isEmpty() else found


def _all_parented(lake: Lake, deltas: "DataFrame", version: int) -> "DataFrame | None":
    """The same of everything at a version, which its files tell without a job."""
    return parented_vectors(deltas) if names_parents(lake.home, version) else None


def compared(deltas: "DataFrame", chosen: "DataFrame") -> "DataFrame":
    """Rows of `vector_conflicts` for some vectors, from all of their deltas."""
    of_chosen = deltas.join(chosen, list(KEYS), how="left_semi")
    return find_conflicts(of_chosen, parented=known_parented(of_chosen))


def _touched_with_clocks(deltas: "DataFrame", covered: dict[int, int]) -> "DataFrame":
    new = new_deltas(deltas, covered).select(*KEYS).distinct()
    return with_bucket(new.join(clocked_vectors(deltas), list(KEYS), how="left_semi"))
