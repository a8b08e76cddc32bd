"""Some vectors folded again, for the suite of `vectors`: from `deltas` alone, by the core that folds one in memory.

Belongs here: which vectors are sampled, and what they should be. Spark folded the table batch after batch and perhaps
over many runs; here each vector's deltas are taken together, in no order, and folded once.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from assets.ingest.schema import DELTAS
from assets.vectors.schema import VECTOR_CHECKPOINTS
from assets.vectors.transform import KEYS, latest_bases, starts_of, vector_deltas
from resources.lake import Lake
from tidemark.vectors.chain import state_of
from tidemark.vectors.fold import whole_states
from tidemark.vectors.places import Standing, with_places
from tidemark.vectors.schema import CURRENT, STATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Enough to find a wrong formula at once, and a rare mistake after some runs: each version samples other vectors.
SAMPLED = 20
# A row of the table may have its state in either form.
REFOLDED = pa.schema([*CURRENT, ("whole_state", pa.binary())])


def sampled(vectors: "DataFrame", version: int) -> list[tuple[str, str]]:
    """The sampled vectors in this version of the table: the first ones by a hash of their names and the version."""
    from pyspark.sql import functions as F

    chosen = vectors.orderBy(F.xxhash64(*KEYS, F.lit(version))).limit(SAMPLED).select(*KEYS).collect()
    return [(row[0], row[1]) for row in chosen]


def refold(lake: Lake, chosen: list[tuple[str, str]], version: int | None) -> pa.Table:
    """What these vectors should be, from all of their deltas in a version of `deltas`."""
    if not chosen:
        return REFOLDED.empty_table()
    deltas = _of(chosen, lake.read(DELTAS.name, version).transform(vector_deltas))
    bases = {}
    if lake.version(VECTOR_CHECKPOINTS.name) is not None:
        held = _of(chosen, starts_of(latest_bases(lake.read(VECTOR_CHECKPOINTS.name))))
        bases = {key: _only(held, key) for key in chosen}
    rows = pa.concat_tables([_refolded(_only(deltas, key), bases.get(key)) for key in chosen])
    [batch] = rows.combine_chunks().to_batches()
    return rows.append_column(REFOLDED.field("whole_state"), whole_states(batch))


def _of(chosen: list[tuple[str, str]], rows: "DataFrame") -> pa.Table:
    names = rows.sparkSession.createDataFrame(chosen, "namespace string, vector_id string")
    table: pa.Table = rows.join(names, list(KEYS), how="left_semi").toArrow()
    return table


def _only(table: pa.Table, key: tuple[str, str]) -> pa.Table:
    is_it = [pc.equal(table[name], value) for name, value in zip(KEYS, key, strict=True)]
    return table.filter(pc.and_(*is_it))


def _refolded(deltas: pa.Table, base: pa.Table | None) -> pa.Table:
    placed = with_places(deltas)
    start = _checkpoint(base) if base is not None and base.num_rows else None
    states = state_of(deltas, start)
    waiting = [placed.filter(pc.equal(placed["standing"], word)).num_rows for word in (Standing.PARKED, Standing.CYCLE)]
    counts = [*waiting, deltas["parent_id"].null_count < deltas.num_rows]
    if not states.num_rows:
        nothing = {"deltas": 0, "no_base": 0, "no_effect": 0, "exists": False, "is_dead": False}
        names = {name: deltas[name][0].as_py() for name in (*KEYS, "shard")}
        states = pa.Table.from_pylist([{**names, **nothing}], schema=STATES)
    for name, value in zip(CURRENT.names[len(STATES) :], counts, strict=True):
        states = states.append_column(CURRENT.field(name), pa.array([value], CURRENT.field(name).type))
    return states


def _checkpoint(start: pa.Table) -> pa.Table:
    """A starting state, with the column names of a state."""
    renamed = {"last_epoch": "epoch", "last_ordinal": "ordinal"}
    return pa.Table.from_arrays([start[renamed.get(f.name, f.name)].cast(f.type) for f in STATES], schema=STATES)
