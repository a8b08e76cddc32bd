"""All tables of the lake, by name.

Belongs here: the list. A table's columns are declared in its stage's `schema.py`. Importing this needs neither Spark
nor Dagster.
"""

from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.rollups.schema import TIERS, WINDOWED_COUNTS
from resources.lake import TableSpec

TABLES: dict[str, TableSpec] = {spec.name: spec for spec in (DELTAS, DEAD_LETTERS, *TIERS, WINDOWED_COUNTS)}
