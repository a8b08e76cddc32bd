"""All tables of the lake, by name, and the graph that the derived ones form.

Belongs here: the lists. A table's columns are declared in its stage's `schema.py`; those of windows and joins follow
from their definitions (`streams/`). Importing this needs neither Spark nor Dagster.
"""

from assets.graph import ROLLUPS, Derived, graph_of
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.rollups.schema import WINDOWED_COUNTS
from assets.vectors.index_schema import PARTS, VECTOR_INDEX
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTOR_CONFLICTS, VECTORS
from assets.windows.catalog import DERIVED
from resources.lake import TableSpec

# What each derived table is made from, in the order in which they are refreshed.
GRAPH: dict[str, Derived] = graph_of((*ROLLUPS, *DERIVED))

# Tables that are made from others as a whole, and not partition by partition.
WHOLE = (WINDOWED_COUNTS, VECTORS, VECTOR_CONFLICTS, VECTOR_CHECKPOINTS, VECTOR_INDEX)

TABLES: dict[str, TableSpec] = {
    spec.name: spec for spec in (DELTAS, DEAD_LETTERS, *(each.spec for each in GRAPH.values()), *WHOLE)
}

# Also the tables that are parts of another one: they have no asset and no suite of their own, and are checked with it.
EVERY_TABLE: dict[str, TableSpec] = TABLES | {spec.name: spec for spec in PARTS}
