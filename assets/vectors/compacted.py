"""What a compaction came to, as one typed value under one key of the orchestrator's metadata.

Belongs here: the models, and how they are written to and read from metadata. What is measured is measured where it is
done (`compaction.py`): rows that a read has to fold, and bytes as the tables' own logs say.
"""

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from dagster import DagsterInstance

COMPACTION_KEY = "tidemark/compaction"
TABLE = "vector_checkpoints"


class Compacted(Struct, frozen=True, kw_only=True):
    """What a run of `vector_checkpoints` has done."""

    vectors: int = 0  # that got a checkpoint
    checkpoints: int = 0  # that were made
    thrown_away: int = 0  # that were stale: a late delta stands below them
    reasons: dict[str, int] = {}  # why → vectors
    folded_before: int = 0  # deltas that a read of each of these vectors had to fold
    folded_after: int = 0  # and has to now
    bases: int = 0  # that were made, or moved on
    cut_us: int | None = None  # of the bases
    bytes_before: int = 0  # of the table of checkpoints
    bytes_after: int = 0

    def to_metadata(self) -> dict[str, Any]:
        """As metadata of a materialization: itself, and the numbers that the orchestrator draws."""
        from dagster import MetadataValue

        drawn = ("vectors", "checkpoints", "thrown_away", "bases", "folded_before", "folded_after")
        return {
            COMPACTION_KEY: MetadataValue.json(msgspec.to_builtins(self)),
            **{name: getattr(self, name) for name in drawn},
        }

    @classmethod
    def latest(cls, instance: "DagsterInstance") -> "Compacted":
        """What the last run has done."""
        from dagster import AssetKey, AssetRecordsFilter

        [event] = instance.fetch_materializations(AssetRecordsFilter(AssetKey(TABLE)), limit=1).records
        materialization = event.asset_materialization
        found = materialization.metadata[COMPACTION_KEY] if materialization else None
        return msgspec.convert(getattr(found, "value", getattr(found, "data", found)), cls)


class KeptBack(Struct, frozen=True, kw_only=True):
    """Payloads that stay when those before a cut go, by the condition that keeps them (K5)."""

    happened_since: int = 0  # at the cut or later
    received_since: int = 0  # happened before the cut, and was received at it or later
    in_no_base: int = 0  # before the cut in both, but waits for a parent, or stands behind something that came later


class Removed(Struct, frozen=True, kw_only=True):
    """What was removed from `deltas`, and what was kept back."""

    payloads: int = 0
    hours: int = 0  # that were written anew, in one commit
    bytes_before: int = 0  # of the files of these hours, by the table's log
    bytes_after: int = 0
    kept_back: KeptBack = KeptBack()

    def to_metadata(self) -> dict[str, Any]:
        """As metadata of an observation."""
        numbers = {f"removed_{name}": number for name, number in msgspec.structs.asdict(self).items()}
        kept_back = {f"kept_{name}": number for name, number in msgspec.structs.asdict(self.kept_back).items()}
        del numbers["removed_kept_back"]
        return {**numbers, **kept_back}
