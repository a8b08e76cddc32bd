"""Errors of the core of vectors, and what to do about them.

Belongs here: its error kinds. Checks of a delta by itself at arrival are in `tidemark/verdicts/`.
"""

from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import from_us


class VectorsError(TidemarkError):
    """Any error of the core of vectors."""


class UnknownOperationError(VectorsError):
    """A row to be folded has no known operation."""

    def __init__(self, op: str | None) -> None:
        super().__init__(f"A delta with the operation {op!r} cannot be folded. Give accepted deltas alone.")


class RemovedPayloadError(VectorsError):
    """Compaction has removed the payload of a delta to be folded, and the base that holds it is missing (K5)."""

    def __init__(self, namespace: str, vector_id: str, delta_id: str) -> None:
        super().__init__(
            f"What delta {delta_id!r} of vector {namespace}/{vector_id} did was removed, because a base held it, and "
            "that base is not in vector_checkpoints any more. Put that table back from a backup; nothing was changed."
        )


class UnsortedError(VectorsError):
    """Rows of a vector were not in canonical order, or its starting state was not its first row."""

    def __init__(self, vector_id: str, trouble: str) -> None:
        super().__init__(
            f"The rows of vector {vector_id!r} cannot be folded: {trouble}. "
            "Sort by namespace, vector_id, eff_us, depth, event_us, origin, delta_id, starting states too."
        )


class StaleCheckpointError(VectorsError):
    """The place of an arrived delta lies below a checkpoint that does not hold it (K4)."""

    def __init__(self, delta_id: str) -> None:
        super().__init__(
            f"Delta {delta_id!r} arrived after the checkpoint was made and sorts before it. "
            "Refold the vector from an older checkpoint, or from all of its deltas."
        )


class BeforeCheckpointError(VectorsError):
    """The requested state is older than the checkpoint to start from."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} lies before the checkpoint. Start from an older one, or from all of the deltas.")

    @classmethod
    def as_of(cls, as_of_us: int) -> "BeforeCheckpointError":
        """A time before the checkpoint's place."""
        return cls(f"{from_us(as_of_us):%Y-%m-%dT%H:%M:%S.%fZ}")

    @classmethod
    def epoch(cls, epoch: int) -> "BeforeCheckpointError":
        """An epoch before the last one that the checkpoint holds."""
        return cls(f"Epoch {epoch}")


class UnknownVectorError(VectorsError):
    """The tables have no delta of such a vector."""

    def __init__(self, namespace: str | None, vector_id: str, hint: str) -> None:
        where = f" in {namespace}" if namespace else ""
        super().__init__(f"There is no vector {vector_id!r}{where}. {hint}")


class BeforeHorizonError(VectorsError):
    """The requested state lies before the payloads that still exist (K6)."""

    def __init__(self, what: str, cut_us: int, last_epoch: int) -> None:
        self.earliest_us, self.earliest_epoch = cut_us, last_epoch
        super().__init__(
            f"{what} lies before the horizon: what this vector was then is no longer kept. The earliest that can be "
            f"read is as of {from_us(cut_us):%Y-%m-%dT%H:%M:%SZ}, or epoch {last_epoch}."
        )


class UnreadableVectorError(VectorsError):
    """The existing deltas do not follow the only remaining state."""

    def __init__(self, vector_id: str) -> None:
        super().__init__(
            f"Vector {vector_id!r} cannot be read: `deltas` does not hold what its base checkpoint was made from. "
            "Drain, and if that does not help, rebuild the hours of its deltas: ./tidemark rebuild."
        )
