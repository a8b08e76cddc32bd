"""The results of a compaction, as one typed value under one key of the orchestrator's metadata.

Belongs here: the models, and how they are written to and read from metadata. The numbers are measured where the work
is done (`compaction.py`): rows that a read has to fold, and bytes from the tables' own logs.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from dagster import DagsterInstance

COMPACTION_KEY = "tidemark/compaction"


class Compacted(Struct, frozen=True, kw_only=True):
    """The results of a run of `vector_checkpoints` in a bucket, or in several."""

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

    def __add__(self, other: "Compacted") -> "Compacted":
        mine, others = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        reasons = dict(sorted((Counter(self.reasons) + Counter(other.reasons)).items()))
        cut_us = other.cut_us if self.cut_us is None else self.cut_us
        added = {name: mine[name] + others[name] for name in mine if name not in ("reasons", "cut_us")}
        return Compacted(**added, reasons=reasons, cut_us=cut_us)

    def to_metadata(self) -> dict[str, Any]:
        """As metadata of a materialization: the value itself, and the numbers that the orchestrator plots."""
        from dagster import MetadataValue

        drawn = ("vectors", "checkpoints", "thrown_away", "bases", "folded_before", "folded_after")
        return {
            COMPACTION_KEY: MetadataValue.json(msgspec.to_builtins(self)),
            **{name: getattr(self, name) for name in drawn},
        }

    @classmethod
    def of_run(cls, instance: "DagsterInstance", run_id: str) -> "Compacted":
        """The results of a run, for all of its buckets together."""
        from dagster import DagsterEventType

        found = cls()
        for entry in instance.all_logs(run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION):
            materialization = entry.asset_materialization
            if materialization is not None and COMPACTION_KEY in materialization.metadata:
                said = materialization.metadata[COMPACTION_KEY]
                found += msgspec.convert(getattr(said, "value", getattr(said, "data", said)), cls)
        return found


class KeptBack(Struct, frozen=True, kw_only=True):
    """Payloads that stay when the payloads before a cut are removed, by the condition that keeps them (K5)."""

    happened_since: int = 0  # at the cut or later
    received_since: int = 0  # happened before the cut, and was received at it or later
    in_no_base: int = 0  # before the cut in both, but waits for a parent, or stands behind something that came later


class Removed(Struct, frozen=True, kw_only=True):
    """The payloads removed from `deltas`, and the ones that were kept."""

    payloads: int = 0
    hours: int = 0  # that were rewritten, in one commit
    bytes_before: int = 0  # of the files of these hours, by the table's log
    bytes_after: int = 0
    kept_back: KeptBack = KeptBack()

    def to_metadata(self) -> dict[str, Any]:
        """As metadata of an observation."""
        numbers = {f"removed_{name}": number for name, number in msgspec.structs.asdict(self).items()}
        kept_back = {f"kept_{name}": number for name, number in msgspec.structs.asdict(self.kept_back).items()}
        del numbers["removed_kept_back"]
        return {**numbers, **kept_back}
