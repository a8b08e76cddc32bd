"""The assets of the rollups: one for each tier of counts, from `minute_counts` on.

Belongs here: read, transform, replace, record. The tiers are declared in `tidemark/tables/tiers.py`. Any number of
ranges of partitions is one Spark job (O2), a pure function of one version of the input (decision 0052, pure functions).
"""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from assets.inputs import Inputs, replace_partitions
from assets.partitions import starts_of
from assets.records import Writing
from assets.rollups.records import rollup_records
from assets.rollups.transform import count_tier
from assets.table_asset import TableAsset
from assets.tables import GRAPH
from resources.lake import Lake, LakeError, TableSpec
from resources.record import Record
from tidemark.counts.retention import settled_before
from tidemark.counts.windows import shown
from tidemark.model.ranges import Range, within
from tidemark.storage.home import Home
from tidemark.tables.tiers import Tier


def rollup_assets() -> list[TableAsset]:
    """An asset for each tier, from fine to coarse."""
    return [rollup_asset(tier) for tier in Tier]


def rollup_asset(tier: Tier) -> TableAsset:
    """The asset of a tier: the sums of its input, for the same time."""
    derived = GRAPH[tier.table]
    source = derived.needs[0].table

    def materialize(run: Writing, windows: Sequence[Range]) -> list[Record]:
        version = replace_sums(run.lake, source, derived.spec, count_tier(tier), *windows)
        return rollup_records(run, source, version, derived.spec, starts_of(windows, derived.spec.grain))

    return TableAsset(derived, materialize, is_held_by_tables=True, takes_gaps=True)


def replace_sums(
    lake: Lake, source: TableSpec, target: TableSpec, transform: Callable[[DataFrame], DataFrame], *windows: Range
) -> int:
    """Sum up ranges of partitions, the earliest first, replace them in one commit, and return the input's version."""
    refuse_settled(lake.home, target, windows[0])

    def sums(inputs: Inputs) -> DataFrame:
        rows = lake.read(source.name, inputs[source.name].version, within=within(source.partition_by, windows))
        return rows.transform(transform)

    return replace_partitions(lake, GRAPH[target.name], sums, *windows, made_from=source.name)[source.name].version


def refuse_settled(home: Home, target: TableSpec, window: Range) -> None:
    """Raise for partitions whose input was dropped: if they were computed again, they would lose their counts (R5)."""
    settled_us = settled_before(home, target.name)
    if settled_us is not None and window.start_us < settled_us:
        raise LakeError(
            f"{target.name} before {shown(settled_us)} is settled: what it is made of was dropped. Nothing was "
            f"changed; begin with {target.grain.key(target.grain.ceil(settled_us))}."
        )
