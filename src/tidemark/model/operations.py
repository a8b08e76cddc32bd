"""The operations on vectors, each declared once: its word, what it needs, and how it treats what was there (D2, D4).

Belongs here: all that follows from a declaration alone. The checks at the door (`verdicts/payload_checks.py`), the
columns and numbers of the fold (`vectors/fold.py`) and its maps (`vectors/maps.py`) read it. Does not belong here: the
arithmetic, which is in `vectors/loops.py`, and the form in which operations are composed (`vectors/compose.py`).

What a delta does:

- `create` begins anew whatever was before: its values, and its own metadata patch on nothing.
- `replace` takes other values and patches the metadata. `set_dims`, `add_dims`, `scale` and `offset` change the values,
  and patch. If one index is at or beyond the vector's present length, the whole delta has no effect.
- `delete` leaves a tombstone without values and metadata (also without its own patch), which keeps its clock.
- Everything but `create` needs a base that lives. If there never was one, it counts as `no_base`; after a delete, or
  with an index that points at nothing, as `no_effect`.
"""

from enum import StrEnum
from typing import NamedTuple

# What an operation may need; it may have nothing else of these.
OPERANDS = ("values", "indices", "factor", "amount")


class Operation(StrEnum):
    """What a vector delta does. Setting and adding are two names: every merge rule depends on it (D2)."""

    CREATE = "create"
    REPLACE = "replace"
    SET_DIMS = "set_dims"
    ADD_DIMS = "add_dims"
    SCALE = "scale"
    OFFSET = "offset"
    DELETE = "delete"


class OperationRule(NamedTuple):
    """What is declared about an operation."""

    needs: tuple[str, ...]  # of `OPERANDS`
    begins_anew: bool = False  # metadata is not patched: it begins from nothing
    takes_patch: bool = True  # the delta's own metadata patch counts

    @property
    def is_whole(self) -> bool:
        """Whether its values are all numbers of a vector, so that there must be as many as the vector has."""
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
