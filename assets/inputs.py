"""The tables that rows are made from, at the versions that a run reads.

Belongs here: what a run has to know about an input before it computes rows. Hold the lock of the table that you write:
then the last writer is also the last reader, and rows of an older version never replace rows of a newer one.
"""

from resources.lake import Lake, LakeError
from tidemark.tables.lineage import Input


def input_of(lake: Lake, table: str) -> Input:
    """An input as it is now."""
    version = lake.version(table)
    if version is None:
        raise LakeError(f"There is no table {table} yet. Drain first: ./tidemark drain.")
    return Input(version, lake.known(table).generation)
