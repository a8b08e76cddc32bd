"""Names under which the orchestrator keeps what it knows of tables and runs: the check of a table, the tags of a run.

Belongs here: names, and what is read from tags alone. Nothing heavy is imported: `status` reads them, too. Does not
belong here: which partitions a run was asked for (`requested.py`), and what a verdict means (`check_states.py`).
"""

from collections.abc import Mapping, Sequence

# One check per table, not one per expectation: a range of a month would be ten thousand events, and the page of a
# partition shows them all together anyway.
CHECK_NAME = "suite"

# The orchestrator's own tags of a run over a single partition, and over a range of them.
PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
# Keys of the partitions of a run that lie outside of the orchestrator's own range, with commas between them.
MORE_PARTITIONS = "tidemark/more_partitions"


def more_partitions(tags: Mapping[str, str]) -> tuple[str, ...]:
    """The partitions that a run's tags name beside the orchestrator's own range."""
    named = tags.get(MORE_PARTITIONS)
    return tuple(named.split(",")) if named else ()


def tags_for_more(keys: Sequence[str]) -> dict[str, str]:
    """The tags that name partitions beside the orchestrator's own range; the inverse of `more_partitions`."""
    return {MORE_PARTITIONS: ",".join(keys)} if keys else {}
