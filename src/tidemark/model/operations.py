"""The operations on vectors, each declared once: its word, its operands, and how it treats the earlier state (D2, D4).

Belongs here: everything that follows from a declaration alone. The checks at the door (`verdicts/payload_checks.py`),
the columns and numbers of the fold (`vectors/fold.py`) and its maps (`vectors/maps.py`) read it. Does not belong here:
the arithmetic, which is in `vectors/loops.py`, and the form in which operations are composed (`vectors/compose.py`).

What a delta does:

- `create` starts over, whatever was before: its values, and its own metadata patch applied to nothing.
- `replace` takes other values and patches the metadata. `set_dims`, `add_dims`, `scale` and `offset` change the values,
  and patch. If one index is at or beyond the vector's current length, the whole delta has no effect.
- `delete` leaves a tombstone without values and metadata (also without its own patch), which keeps its clock.
- Every operation but `create` needs a live base. If there never was one, it counts as `no_base`; after a delete, or
  with an index beyond the vector's length, as `no_effect`.
"""

from enum import StrEnum
from typing import NamedTuple

# The operands; an operation may have only those that it needs.
OPERANDS = ("values", "indices", "factor", "amount")


class Operation(StrEnum):
    """What a vector delta does. Setting and adding have two names: every merge rule depends on it (D2)."""

    CREATE = "create"
    REPLACE = "replace"
    SET_DIMS = "set_dims"
    ADD_DIMS = "add_dims"
    SCALE = "scale"
    OFFSET = "offset"
    DELETE = "delete"


class OperationRule(NamedTuple):
    """The declaration of an operation."""

    needs: tuple[str, ...]  # of `OPERANDS`
    begins_anew: bool = False  # metadata is not patched but starts empty
    takes_patch: bool = True  # the delta's own metadata patch counts

    @property
    def is_whole(self) -> bool:
        """Whether its values are all of a vector's numbers, so their count must be the vector's length."""
        return "values" in self.needs and not self.is_partial

    @property
    def is_partial(self) -> bool:
        """Whether its values belong to the dimensions that its indices name."""
        return "indices" in self.needs


RULES: dict[Operation, OperationRule] = {
    Operation.CREATE: OperationRule(("values",), begins_anew=True),
    Operation.REPLACE: OperationRule(("values",)),
    Operation.SET_DIMS: OperationRule(("values", "indices")),
    Operation.ADD_DIMS: OperationRule(("values", "indices")),
    Operation.SCALE: OperationRule(("factor",)),
    Operation.OFFSET: OperationRule(("amount",)),
    Operation.DELETE: OperationRule((), begins_anew=True, takes_patch=False),
}

# The number by which the compiled loop knows each operation: its place in the enum. Numbers are never stored.
CODES: dict[Operation, int] = {operation: code for code, operation in enumerate(Operation)}
