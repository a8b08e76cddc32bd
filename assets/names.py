"""The orchestrator's names for what it stores about tables and runs: the check of a table, the tags of a run.

Belongs here: names, and what can be read from tags alone. It imports nothing heavy, because `status` reads the names,
too. Does not belong here: the requested partitions of a run (`requested.py`), the meaning of a check result
(`check_states.py`).
"""

from collections.abc import Mapping, Sequence

# One check per table, not one per expectation: a range of a month would give ten thousand events, and the page of a
# partition shows all expectations together anyway.
CHECK_NAME = "suite"

# The orchestrator's own tags of a run over a single partition, and over a range of them.
PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
# Keys of a run's partitions outside the orchestrator's own range, separated by commas.
MORE_PARTITIONS = "tidemark/more_partitions"

# Asset → partition → why it was not made, in the metadata of a refresh.
HELD_BACK = "tidemark/held_back"


def more_partitions(tags: Mapping[str, str]) -> tuple[str, ...]:
    """The partitions that a run's tags name in addition to the orchestrator's own range."""
    named = tags.get(MORE_PARTITIONS)
    return tuple(named.split(",")) if named else ()


def tags_for_more(keys: Sequence[str]) -> dict[str, str]:
    """The tags for partitions in addition to the orchestrator's own range; the inverse of `more_partitions`."""
    return {MORE_PARTITIONS: ",".join(keys)} if keys else {}
