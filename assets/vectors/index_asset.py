"""The asset `vector_index`: the contents of `vectors`, in a form that finds the nearest ones (V1-V3).

Belongs here: which versions are read, which parts of which table are written, in which order, and the record. How an
index follows its vectors is in `index_step.py`; how it is read and searched in `tidemark/vectors`.

NumPy computes an index from rows that delta-rs reads, and Spark writes it, in the same way as every table: it holds the
table's lock, leaves a marker, is fsynced, and is remembered beside the plans. A second way of writing would have to do
all of that again. The four parts are committed first and the pointer last: a run that dies between them leaves readers
with the index that they had, and the next run writes the parts whole.

Versions that the pointer names stay readable: VACUUM deletes a file only when a later version replaced it longer ago
than the retention (a week). A reader that opened an index may read it for that long after the pointer moved.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.inputs import input_of
from assets.metadata import data_version_tags
from assets.partitions import FROM_ANY
from assets.records import Writing
from assets.table_asset import asset_of
from assets.trust import refuse_any
from assets.vectors.asset import GROUP
from assets.vectors.index_schema import PARTS, VECTOR_INDEX
from assets.vectors.index_step import (
    Step,
    Way,
    buckets_to_write,
    build_index,
    next_index,
    only_buckets,
    pointer_rows,
    rows_of_parts,
)
from assets.vectors.records import index_record, record_of_all
from assets.vectors.schema import VECTORS
from assets.vectors.transform import arranged
from assets.watermarks import input_watermarks, record_watermarks
from resources.lake import Lake
from resources.platform import TidemarkResource
from resources.record import Record
from resources.session import frame_of
from tidemark.storage.failpoints import failpoint
from tidemark.storage.home import Home
from tidemark.tables.lineage import Input
from tidemark.vectors.index.errors import IndexDamageError
from tidemark.vectors.index.tables import Versions, origin_of, versions_of
from tidemark.vectors.reading.stored_index import files_since, namespaces_in, pointers, read_index, states_in

if TYPE_CHECKING:
    import pyarrow as pa

# The table of each field of `Versions`.
_PART_OF = {f"vector_{name}": name for name in Versions._fields}


class IndexConfig(dg.Config):
    """What a run may be asked for."""

    rebuild: bool = Field(
        default=False,
        description="Train all centroids anew, whether that is due or not: after a change of the kind of vectors, say.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        description="Of the training and of the sample that recall is measured with: the same vectors and the same seed"
        " give the same index.",
    )


@asset_of(VECTOR_INDEX, group=GROUP, deps=[dg.AssetDep(VECTORS.name, partition_mapping=FROM_ANY)])
def vector_index(
    context: dg.AssetExecutionContext, config: IndexConfig, tidemark: TidemarkResource
) -> dg.MaterializeResult[None]:
    """Fold the changes of `vectors` into each namespace's index, or build it; publish all of them together."""
    lake, run = tidemark.lake, Writing(context, tidemark.lake, tidemark.now_us)
    marks = input_watermarks(lake.home.plans, [VECTORS.name])
    # Before the version is read, so that no record is ahead of the rows.
    source = record_of_all(lake, Record.latest_by_partition(context.instance, VECTORS.name).values())
    previous = Record.found(context.instance, VECTOR_INDEX.name)
    with lake.lock(VECTOR_INDEX.name):
        version = input_of(lake, VECTORS.name).version
        refuse_any(context.instance, lake, VECTOR_INDEX.name, VECTORS.name)
        lake.settle(VECTOR_INDEX)
        steps = next_indexes(lake.home, version, seed=config.seed, is_rebuild=config.rebuild)
        write_indexes(lake, steps, version)
    failpoint("rollup.committed")
    record = index_record(run, version, source, previous)
    record_watermarks(lake.home.plans, [record], marks)
    failpoint("record.logged")
    return dg.MaterializeResult(metadata={**_told(steps), **record.to_metadata()}, tags=data_version_tags(record))


def next_indexes(home: Home, version: int, *, seed: int, is_rebuild: bool) -> list[Step]:
    """The next index of each namespace that has an index or vectors to make one from; needs no JVM."""
    known = {} if is_rebuild else pointers(home)
    everywhere = files_since(home, None, version)
    since = {name: files_since(home, origin_of(row).vectors_version, version) for name, row in known.items()}
    # A namespace without an index can only come from changes that no index has yet.
    unread = everywhere if not since else sorted(set().union(*map(set, since.values())))
    steps: list[Step] = []
    for name in sorted({*known, *namespaces_in(unread)}):
        everything = partial(states_in, everywhere, name)
        try:
            step = None
            if row := known.get(name):
                changed = states_in(since[name], name)
                step = next_index(read_index(home, row), origin_of(row), changed, everything, seed=seed)
        except IndexDamageError:
            pass  # it has no data of its own, so it is made again
        step = step or build_index(name, everything(), seed=seed)
        steps += [step] if step else []
    return steps


def write_indexes(lake: Lake, steps: list[Step], version: int) -> None:
    """Commit the changed parts, then the pointer. If nothing has changed, nothing is written."""
    known = pointers(lake.home)
    named = max(map(versions_of, known.values()), default=None)
    if not steps:
        # There was never a live vector: the parts exist nevertheless, empty, for checks and readers.
        for spec in PARTS:
            lake.settle(spec)
        return
    made_from = Input(version, lake.known(VECTORS.name).generation)
    rows = rows_of_parts([step.index for step in steps])
    versions = dict[str, int]()
    for spec in PARTS:
        with lake.lock(spec.name):
            lake.settle(spec)
            is_as_named = named is not None and lake.version(spec.name) == getattr(named, _PART_OF[spec.name])
            buckets = buckets_to_write(spec, steps, is_as_named=is_as_named)
            if buckets is None or buckets:
                chosen = arranged(frame_of(lake.spark, only_buckets(rows[spec.name], buckets)), spec.order_by)
                lake.replace(spec, chosen, hours=buckets, made_from=made_from)
            versions[_PART_OF[spec.name]] = lake.version(spec.name) or 0
        failpoint("index.parts_committed")
    published = pointer_rows(steps, Versions(**versions), version)
    if not _is_published(known, published):
        pointer = arranged(frame_of(lake.spark, published), VECTOR_INDEX.order_by)
        lake.replace(VECTOR_INDEX, pointer, hours=None, made_from=made_from)


def _is_published(known: "dict[str, pa.Table]", rows: "pa.Table") -> bool:
    said = [row for table in known.values() for row in table.to_pylist()]
    wanted = [{name: value for name, value in row.items() if name != "bucket"} for row in rows.to_pylist()]
    return sorted(said, key=_by_namespace) == sorted(wanted, key=_by_namespace)


def _by_namespace(row: dict[str, Any]) -> str:
    return str(row["namespace"])


def _told(steps: list[Step]) -> dict[str, Any]:
    """Metadata of a run for people: numbers of all indexes together, and the least recall."""
    recalls = [known.recall for step in steps for known in step.index.probing]
    return {
        "live": sum(step.index.live for step in steps),
        "dead": sum(step.index.dead for step in steps),
        "left_out": sum(step.left_out for step in steps),
        "upserts": sum(step.upserts for step in steps if step.way is Way.FOLDED),
        "deletes": sum(step.deletes for step in steps),
        "built": sum(step.way is Way.BUILT for step in steps),
        "recall": min(recalls, default=1.0),
        "indexes": dg.MetadataValue.json(
            {
                step.index.namespace: {
                    "way": str(step.way),
                    "lists": len(step.index.centroids),
                    "probing": {
                        known.metric.value: {"probes": known.probes, "recall": known.recall}
                        for known in step.index.probing
                    },
                }
                for step in steps
            }
        ),
    }
