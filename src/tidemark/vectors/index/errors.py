"""The errors of the vector index, each with what to do about it.

Belongs here: its error kinds.
"""

from tidemark.model.errors import DamageError, TidemarkError


class VectorIndexError(TidemarkError):
    """Any error of the vector index."""


class InternalIdError(VectorIndexError):
    """A shard, an epoch or an ordinal does not fit into an internal id (V1)."""

    def __init__(self, part: str, value: int, limit: int) -> None:
        super().__init__(
            f"The {part} {value:,} does not fit into an internal id: 0 to {limit - 1:,} do. "
            "Send vectors in smaller writes if it is an ordinal; otherwise the index cannot take this vector."
        )


class DimensionError(VectorIndexError):
    """Vectors or queries have another length than the vectors of the index."""

    def __init__(self, what: str, found: tuple[int, ...], dimension: int) -> None:
        super().__init__(
            f"{what} come as an array of shape {found}; this index has vectors of {dimension:,} dimensions. "
            "Give one row per vector, each of that length."
        )


class NotANumberError(VectorIndexError):
    """A vector or a query contains NaN: it is neither near nor far."""

    def __init__(self, what: str, row: int) -> None:
        super().__init__(f"{what}: row {row:,} contains NaN, which has no distance. Leave it out, or give it a number.")


class SearchError(VectorIndexError):
    """A search was requested that has no answer."""


class RepeatedError(VectorIndexError):
    """A vector or an internal id occurs twice where it must occur once."""


class IndexDamageError(DamageError):
    """Tables of an index do not belong together."""
