"""From the current index, and vectors as they are now, to the next index: folded on, or built again (V1, V2).

Belongs here: pure steps for one namespace, and which rows of which table they lead to. What is read and written, and
when, is in `index_asset.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assets.vectors.index_schema import (
    VECTOR_CENTROIDS,
    VECTOR_DELETED,
    VECTOR_DICTIONARY,
    VECTOR_POSTINGS,
)
from tidemark.tables.table_spec import TableSpec
from tidemark.vectors.index.fold import Changes, Folded, build, fold, rebuild_due, vectors_of
from tidemark.vectors.index.internal_ids import Ids, scattered
from tidemark.vectors.index.recall import with_probing
from tidemark.vectors.index.state import VectorIndex
from tidemark.vectors.index.tables import Origin, Versions, pointer_row, to_tables
from tidemark.vectors.reading.stored_index import States, chosen_of, dimension_of
from tidemark.vectors.tables import BUCKET, BUCKETS

# When the index has grown by this much since recall was measured, it is measured again.
MEASURED_GROWTH = 0.1


class Way(StrEnum):
    """How an index came to be."""

    KEPT = "kept"  # nothing has changed
    FOLDED = "folded"
    BUILT = "built"


@dataclass(frozen=True)
class Step:
    """The next index of a namespace, and the buckets of each part that it changes; None stands for all of them."""

    index: VectorIndex
    way: Way
    left_out: int
    measured_entries: int
    upserts: int = 0
    deletes: int = 0
    touched: Mapping[str, frozenset[int]] | None = None


def build_index(namespace: str, states: States, *, seed: int) -> Step | None:
    """An index of all live vectors of a namespace, with its recall measured; None if no vector is live."""
    dimension = dimension_of(states)
    if dimension is None:
        return None
    chosen = chosen_of(states, dimension)
    epoch = int(states.epochs.max(initial=0))
    index = with_probing(build(namespace, chosen.changes.upserts, epoch=epoch, seed=seed), seed=seed)
    return Step(index, Way.BUILT, chosen.left_out, len(index.postings.internal_ids), upserts=index.live)


def next_index(
    before: VectorIndex, origin: Origin, states: States, everything: Callable[[], States], *, seed: int
) -> Step:
    """The index after changes of some vectors; built from `everything` if that is due or cannot be avoided."""
    chosen, left_out = chosen_of(states, before.dimension), 0
    if chosen.left_out or origin.left_out:
        # Vectors of other lengths may be the majority by now.
        whole = everything()
        if dimension_of(whole) != before.dimension:
            return _rebuilt(before, whole, seed)
        left_out = chosen_of(whole, before.dimension).left_out
    folded = fold(before, chosen.changes)
    if not folded.is_changed:
        return Step(before, Way.KEPT, left_out, origin.measured_entries, touched={})
    if rebuild_due(folded.index) or not folded.index.live:
        return _rebuilt(folded.index, everything(), seed)
    index, entries = folded.index, len(folded.index.postings.internal_ids)
    measured = origin.measured_entries
    if entries > (1 + MEASURED_GROWTH) * measured:
        index, measured = with_probing(index, seed=before.training.seed), entries
    counted = (len(folded.upserts.internal_ids), len(folded.removed))
    return Step(index, Way.FOLDED, left_out, measured, *counted, touched=_touched(folded))


def _rebuilt(before: VectorIndex, states: States, seed: int) -> Step:
    """Built again. If no vector is live any more, the old lists stay, and searches find nothing in them."""
    step = build_index(before.namespace, states, seed=seed)
    if step is not None:
        return step
    nobody = vectors_of([], np.empty(0, np.int64), np.empty((0, before.dimension), np.float32))
    gone = fold(before, Changes(nobody, before.dictionary.vector_ids))
    return Step(gone.index, Way.FOLDED, 0, len(gone.index.postings.internal_ids), deletes=len(gone.removed))


def _touched(folded: Folded) -> dict[str, frozenset[int]]:
    """Buckets of the parts that a fold changes: those of ids that are new or dead now, and of lists that changed."""
    new, dead = folded.upserts.internal_ids, folded.dead
    return {
        VECTOR_DICTIONARY.name: frozenset(_dictionary_buckets(np.concatenate([new, dead])).tolist()),
        VECTOR_POSTINGS.name: frozenset(_posting_buckets(folded.lists).tolist()),
        VECTOR_CENTROIDS.name: frozenset(),
        VECTOR_DELETED.name: frozenset({0}),
    }


def rows_of_parts(indexes: Sequence[VectorIndex]) -> dict[str, pa.Table]:
    """All rows of the four parts, with the bucket of each."""
    stored = [to_tables(index) for index in indexes]
    found: dict[str, pa.Table] = {}
    for spec, part in zip(
        (VECTOR_DICTIONARY, VECTOR_CENTROIDS, VECTOR_POSTINGS, VECTOR_DELETED),
        ("dictionary", "centroids", "postings", "deleted"),
        strict=True,
    ):
        rows = pa.concat_tables(getattr(tables, part) for tables in stored)
        found[spec.name] = rows.append_column(
            pa.field(BUCKET, pa.int32(), nullable=False), pa.array(_buckets(spec, rows), pa.int32())
        )
    return found


def pointer_rows(steps: Sequence[Step], versions: Versions, vectors_version: int) -> pa.Table:
    """The rows of `vector_index`, one for each namespace."""
    rows = pa.concat_tables(
        pointer_row(step.index, versions, Origin(vectors_version, step.left_out, step.measured_entries))
        for step in steps
    )
    return rows.append_column(pa.field(BUCKET, pa.int32(), nullable=False), pa.array([0] * len(rows), pa.int32()))


def buckets_to_write(spec: TableSpec, steps: Sequence[Step], *, is_as_named: bool) -> list[int] | None:
    """The buckets of a part that are rewritten; None stands for all.

    If a part is not at the version that the pointer names, a run died before it wrote the pointer, or another process
    changed the part: then it is written whole.
    """
    if not is_as_named or any(step.touched is None for step in steps):
        return None
    return sorted(frozenset().union(*(step.touched[spec.name] for step in steps if step.touched)))


def only_buckets(rows: pa.Table, buckets: Sequence[int] | None) -> pa.Table:
    """The rows of some buckets."""
    return rows if buckets is None else rows.filter(pc.is_in(rows[BUCKET], pa.array(buckets, pa.int32())))


def _buckets(spec: TableSpec, rows: pa.Table) -> Ids:
    if spec is VECTOR_DICTIONARY:
        return _dictionary_buckets(np.asarray(rows["internal_id"]))
    if spec is VECTOR_POSTINGS:
        return _posting_buckets(np.asarray(rows["centroid_id"]))
    return np.zeros(rows.num_rows, np.int64)


def _dictionary_buckets(ids: Ids) -> Ids:
    return scattered(ids, BUCKETS)


def _posting_buckets(centroid_ids: Ids) -> Ids:
    """A posting list lies in one file."""
    return centroid_ids % BUCKETS
