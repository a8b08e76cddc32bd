"""The tables that rows are made from, as they are read.

Belongs here: what is asked of an input before rows are computed. Ask with the lock of the table that is written held:
then whoever writes last has read last, and no rows of an older version take the place of rows of a newer one.
"""

from resources.lake import Lake, LakeError
from tidemark.tables.lineage import Input


def input_of(lake: Lake, table: str) -> Input:
    """A table as it is now."""
    version = lake.version(table)
    if version is None:
        raise LakeError(f"There is no table {table} yet. Drain first: ./tidemark drain.")
    return Input(version, lake.known(table).generation)
