"""Whether a partition is behind an input: one comparison for everybody who knows what the partition was made from.

That is kept in two places, for two kinds of readers. The lineage file beside a table (`lineage.py`) needs no
orchestrator: exact counts rely on it. The orchestrator's records (`resources/record.py`) say more than it does (the
definition, what was carried in, how far the log was read), and a partition without a record has to be made again in any
case. Both ask here, so they cannot mean different things by "behind".

Belongs here: the comparison, pure. Does not belong here: which partitions of an input a partition is made of
(`tidemark/counts/tables.py` for the tiers of counts, `assets/stale.py` along the whole graph), and words for people.
"""

from enum import StrEnum

from tidemark.tables.lineage import Made


class Behind(StrEnum):
    """Why a partition does not hold what follows from its input as it is now."""

    NEVER_MADE = "never_made"  # the input has something for it
    NOT_KNOWN = "not_known"  # it has rows, and from which version of the input they were made is not known
    REPLACED = "replaced"  # it was made from an earlier generation of the input
    CHANGED = "changed"  # it was made from an older version of what the input has for it


def find_behind(made: Made | None, *, changed: int, generation: int) -> Behind | None:
    """Why a partition is behind an input of a `generation` that last `changed` for it in that version, if it is.

    -1 stands for an input that never had anything for it.
    """
    if made is None:
        return Behind.NEVER_MADE if changed >= 0 else None
    if made.source < 0 <= made.changed:
        return Behind.NOT_KNOWN
    if made.generation != generation:
        return Behind.REPLACED
    return Behind.CHANGED if made.source < changed else None
