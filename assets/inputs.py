"""The tables that rows are made from, at the versions that a run reads.

Belongs here: what a run has to know about its inputs before it computes rows, and replacing partitions by these rows.
Does not belong here: how rows are computed (each stage), the records of what was written (`records.py`).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from assets.graph import Derived
from assets.ingest.schema import DELTAS
from assets.partitions import partitions_in
from assets.trust import refuse_edited
from resources.lake import Lake, LakeError
from tidemark.model.ranges import Range
from tidemark.storage.failpoints import failpoint
from tidemark.tables.lineage import Input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The tables that rows are made from, by name, each at the version that is read.
Inputs: TypeAlias = Mapping[str, Input]


def input_of(lake: Lake, table: str) -> Input:
    """An input as it is now."""
    version = lake.version(table)
    if version is None:
        raise LakeError(f"There is no table {table} yet. Drain first: ./tidemark drain.")
    return Input(version, lake.known(table).generation)


def replace_partitions(
    lake: Lake,
    derived: Derived,
    rows: "Callable[[Inputs], DataFrame]",
    *ranges: Range,
    made_from: str = DELTAS.name,
) -> Inputs:
    """Replace ranges of partitions, in one commit, by rows made from the inputs as they are now; returns these inputs.

    The versions of the inputs are chosen under the table's lock: so the last writer is also the last reader, and rows
    of an older version never replace rows of a newer one. `made_from` is the input that the table's lineage names.
    """
    spec = derived.spec
    with lake.lock(spec.name):
        inputs = {table: input_of(lake, table) for table in dict.fromkeys((made_from, *derived.inputs))}
        refuse_edited(lake, derived, ranges)
        lake.settle(spec)
        # Sums and windows are small: one file per partition, sorted for lookups.
        filed = rows(inputs).repartition(spec.partition_by).sortWithinPartitions(spec.partition_by, *spec.order_by)
        lake.replace(spec, filed, hours=partitions_in(ranges, spec.grain), made_from=inputs[made_from])
    failpoint("rollup.committed")
    return inputs
