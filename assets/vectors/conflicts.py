"""Pairs of a vector's deltas whose clocks disagree with the order in which they are folded (D8).

Belongs here: from placed deltas to rows of `vector_conflicts`, in Arrow batches; of a vector only the look-back is in
memory. How two clocks relate is in `tidemark/vectors/clocks.py`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.vectors.schema import BUCKET, BUCKET_SQL, VECTOR_CONFLICTS
from assets.vectors.transform import KEYS, place_alone, place_families
from tidemark.tables.table_spec import sql_type
from tidemark.vectors.clocks import LOOK_BACK, Conflict, conflicts
from tidemark.vectors.order import begins_vector
from tidemark.vectors.places import PLACE_COLUMNS, Standing
from tidemark.vectors.schema import CLOCK

# Of each side.
_SIDE: list[tuple[str, pa.DataType]] = [
    ("delta_id", pa.string()),
    ("origin", pa.string()),
    ("event_us", pa.int64()),
    ("eff_us", pa.int64()),
    ("epoch", pa.int64()),
    ("op", pa.string()),
    ("clock", CLOCK),
]
_FOUND = pa.schema(
    [
        *((name, pa.string()) for name in KEYS),
        ("kind", pa.string()),
        *((f"{side}_{name}", kind) for side in ("earlier", "later") for name, kind in _SIDE),
    ]
)
_FOUND_DDL = ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in _FOUND)
# This many are yielded at once.
_GIVEN_AT_ONCE = 4_096


def clocked_vectors(deltas: DataFrame) -> DataFrame:
    """The vectors that have a clock anywhere: the others cannot have conflicts."""
    return deltas.where("cardinality(clock) > 0").select(*KEYS).distinct()


def find_conflicts(deltas: DataFrame, *, parented: DataFrame | None) -> DataFrame:
    """Rows of `vector_conflicts` from all deltas of some vectors (`vector_deltas`)."""
    if parented is None:
        placed = place_alone(deltas)
    else:
        alone, families = (deltas.join(parented, list(KEYS), how=how) for how in ("left_anti", "left_semi"))
        placed = place_alone(alone).unionByName(place_families(families))
    said = placed.where((F.col("standing") == Standing.PLACED.value) & F.expr("cardinality(clock) > 0"))
    together = said.select(*KEYS, *PLACE_COLUMNS, "epoch", "op", "clock").repartition(*KEYS)
    found = together.sortWithinPartitions(*KEYS, *PLACE_COLUMNS).mapInArrow(_found, _FOUND_DDL)
    times = {
        f"{side}_{name}_ts": F.timestamp_micros(f"{side}_{name}_us")
        for side in ("earlier", "later")
        for name in ("event", "eff")
    }
    return found.withColumns({**times, BUCKET: F.expr(BUCKET_SQL)}).select(*VECTOR_CONFLICTS.names)


def _found(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Conflicts of vectors; the rows of each vector come together, in canonical order."""
    looked_at: list[pa.RecordBatch] = []  # the last rows of a vector that may continue in the next batch
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([*looked_at, batch])
        known = sum(each.num_rows for each in looked_at)
        borders = [0, *(begins_vector(rows).nonzero()[0] + 1).tolist(), rows.num_rows]
        for begin, end in pairwise(borders):
            yield from _of_one(rows.slice(begin, end - begin), known - begin)
        last = max(borders[-2], rows.num_rows - LOOK_BACK)
        looked_at = rows.slice(last).to_batches()


def _of_one(rows: pa.Table, known: int) -> Iterator[pa.RecordBatch]:
    """Conflicts of one vector, without those of its first `known` rows, which were yielded before."""
    clocks = [dict(clock) for clock in rows["clock"].to_pylist()]
    found = (each for each in conflicts(clocks) if each.later >= known)
    while given := list(islice(found, _GIVEN_AT_ONCE)):
        yield _batch(rows, given)


def _batch(rows: pa.Table, found: list[Conflict]) -> pa.RecordBatch:
    sides = {
        "earlier": rows.take([each.earlier for each in found]).combine_chunks(),
        "later": rows.take([each.later for each in found]).combine_chunks(),
    }
    columns = [
        *(sides["later"][name] for name in KEYS),
        pa.array([each.kind.value for each in found]),
        *(side[name] for side in sides.values() for name, _ in _SIDE),
    ]
    [batch] = pa.Table.from_arrays(columns, schema=_FOUND).combine_chunks().to_batches()
    return batch
