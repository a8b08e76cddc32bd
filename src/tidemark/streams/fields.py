"""The fields of a delta that a stream may name: in its key, in its conditions, in its aggregates.

Belongs here: the fields of each kind, where they lie in a row of `deltas`, and which are numbers. They have the names
of the payload (`entity_id`, `count`, `labels.van`) or of the envelope (`key`, `producer`). Types are words: reading a
definition does not need Arrow.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

from tidemark.model.deltas import KINDS, Kind

if TYPE_CHECKING:
    import pyarrow as pa

# Of the envelope, those that may tell windows apart. The namespace and the kind are the stream's own.
ENVELOPE = ("key", "producer", "origin", "source", "priority")
# What the payload has besides lists and maps, with its type.
PLAIN_FIELDS = {
    kind: {name: field.type for name, field in rule.fields.items() if field.is_plain} for kind, rule in KINDS.items()
}
# The fields that are a delta's key: a stream's key with one of them has one key of deltas.
OWN_KEY = {kind: {"key", rule.key} - {None} for kind, rule in KINDS.items()}
# Columns of every row of windows; the columns of the key come before, those of the aggregates after.
STATISTICS = (
    "window_id",
    "window_start",
    "window_end",
    "deltas",
    "revision",
    "late",
    "keys",
    "bytes",
    "mean_bytes",
    "min_event_ts",
    "max_event_ts",
    "epochs",
    "close_reason",
)
LABEL_PATTERN = r"[a-z][a-z0-9_]{0,40}"


class Field(NamedTuple):
    """A field: its name, its column in the windows, its place in a delta, and Arrow's name for its type."""

    name: str
    column: str
    sql: str
    alias: str

    @property
    def type(self) -> "pa.DataType":
        """Its type in a table."""
        import pyarrow as pa

        return pa.type_for_alias(self.alias)

    @property
    def is_number(self) -> bool:
        """Whether it can be summed."""
        return self.alias != "string"

    @property
    def is_integral(self) -> bool:
        """Whether its sums are exact (N5)."""
        return self.alias == "int64"


def find_field(kind: Kind, name: str) -> Field | None:
    """The field of that name, if deltas of that kind have it."""
    if name in ENVELOPE:
        return Field(name, name, f"`{name}`", "string")
    group, _, label = name.partition(".")
    if group == KINDS[kind].labels and re.fullmatch(LABEL_PATTERN, label):
        return Field(name, f"{group}_{label}", f"{kind.value}.{group}['{label}']", "string")
    alias = PLAIN_FIELDS[kind].get(name)
    return Field(name, name, f"{kind.value}.`{name}`", alias) if alias else None


def field_of(kind: Kind, name: str) -> Field:
    """The field of that name in a loaded definition, where it surely exists."""
    found = find_field(kind, name)
    if found is None:
        raise KeyError(name)
    return found


def field_names(kind: Kind, *, is_number: bool = False) -> list[str]:
    """The allowed names, for an error message."""
    names, labels = [*PLAIN_FIELDS[kind], *ENVELOPE], KINDS[kind].labels
    found = [field for name in names if (field := find_field(kind, name)) and (field.is_number or not is_number)]
    return [*([f"{labels}.NAME"] if labels and not is_number else []), *(field.name for field in found)]
