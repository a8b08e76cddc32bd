"""Which partitions of the rollups are behind their input, and why.

Belongs here: comparing records with records and with the tables; what to do about it is the caller's. No Spark.
"""

from typing import TYPE_CHECKING

from assets.ingest.schema import DELTAS
from assets.rollups.records import partition_key
from assets.rollups.schema import CHAIN
from resources import lake_files
from resources.home import Home
from resources.lake import TableSpec
from resources.lineage import Lineage, LineageFile, find_break
from resources.record import Record

if TYPE_CHECKING:
    from dagster import DagsterInstance


def stale_partitions(
    instance: "DagsterInstance", home: Home, *, seen: dict[int, Record | None] | None = None
) -> dict[str, dict[str, str]]:
    """Asset → partition → why it is stale; assets in the order in which they are to be refreshed.

    A partition is fresh when its record was made under the table's present lineage, from an input of the input's
    present lineage, at a version that is not older than the last change of the input's partition.
    """
    stale: dict[str, dict[str, str]] = {}
    inputs = Record.latest_by_partition(instance, DELTAS.name, seen=seen)
    hours = {partition_key(DELTAS, start) for start in lake_files.partitions(home.lake / DELTAS.name)}
    present = inputs.keys() | hours
    for source, target in CHAIN:
        records = Record.latest_by_partition(instance, target.name, seen=seen)
        found: dict[str, str] = {}
        lineages = {spec.name: _present(home, spec) for spec in (source, target)}
        own_keys = {key: partition_key(target, source.grain.start(key)) for key in sorted(present)}
        for key, own_key in own_keys.items():
            upstream = stale.get(source.name, {}).get(key)
            why = (
                f"{source.name} {key} is stale"
                if upstream
                else _why(source, inputs.get(key), target, records.get(own_key), lineages)
            )
            if why:
                found.setdefault(own_key, why)
        stale[target.name] = found
        inputs, present = records, set(own_keys.values())
    return stale


def _present(home: Home, spec: TableSpec) -> int:
    """The lineage that the table's next commit will have: a table that was tampered with is as good as gone."""
    known: Lineage = LineageFile(home.plans, spec.name).read()
    return known.lineage + (1 if find_break(home.lake / spec.name, known) else 0)


def _why(
    source: TableSpec, given: Record | None, target: TableSpec, made: Record | None, lineages: dict[str, int]
) -> str | None:
    if made is None:
        return "it has never been materialized"
    if made.lineage != lineages[target.name]:
        return f"{target.name} was deleted, restored or replaced since"
    if made.input_lineages.get(source.name) != lineages[source.name]:
        return f"{source.name} was deleted, restored or replaced since"
    version = made.input_versions.get(source.name, -1)
    if given and given.table_version > version:
        return f"{source.name} {given.partition} changed in version {given.table_version}, it was made from {version}"
    return None
