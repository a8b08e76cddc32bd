"""The fields of a delta that a stream may name: in its key, in its conditions, in its aggregates.

Belongs here: which there are by kind, where they lie in a row of `deltas`, and which are numbers. They are named as the
payload has them (`entity_id`, `count`, `labels.van`), or as the envelope does (`key`, `producer`).
"""

import re
from typing import NamedTuple

import pyarrow as pa

from resources.coordinator.model import Kind
from resources.coordinator.schema import SAMPLE, SIGNAL, VECTOR

# Of the envelope, those that may tell windows apart. The namespace and the kind are the stream's own.
ENVELOPE = ("key", "producer", "origin", "source", "priority")
PAYLOADS = {Kind.VECTOR: VECTOR, Kind.SAMPLE: SAMPLE, Kind.SIGNAL: SIGNAL}
# The fields that say what a delta is about: a key with one of them holds one key of deltas.
OWN_KEY = {Kind.SIGNAL: {"key", "entity_id"}, Kind.SAMPLE: {"key"}, Kind.VECTOR: {"key", "vector_id"}}
# What every row of windows has; the columns of the key come before, those of the aggregates behind.
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
LABELS = "labels"
LABEL_PATTERN = r"^[a-z][a-z0-9_]{0,40}$"


class Field(NamedTuple):
    """A field: its name, the column that it becomes, where it lies, and its type."""

    name: str
    column: str
    sql: str
    type: pa.DataType

    @property
    def is_number(self) -> bool:
        """Whether it can be summed up."""
        return bool(pa.types.is_integer(self.type) or pa.types.is_floating(self.type))

    @property
    def is_integral(self) -> bool:
        """Whether its sums are exact (N5)."""
        return bool(pa.types.is_integer(self.type))


def find_field(kind: Kind, name: str) -> Field | None:
    """The field of that name, if deltas of that kind have it."""
    if name in ENVELOPE:
        return Field(name, name, f"`{name}`", pa.string())
    group, _, label = name.partition(".")
    if kind is Kind.SAMPLE and group == LABELS and re.match(LABEL_PATTERN, label):
        return Field(name, f"{LABELS}_{label}", f"sample.labels['{label}']", pa.string())
    payload = PAYLOADS[kind]
    place = payload.get_field_index(name)
    if place < 0 or not (pa.types.is_string(payload[place].type) or pa.types.is_primitive(payload[place].type)):
        return None
    return Field(name, name, f"{kind.value}.`{name}`", payload[place].type)


def field_of(kind: Kind, name: str) -> Field:
    """The field of that name, which a definition that was loaded is known to have."""
    found = find_field(kind, name)
    if found is None:
        raise KeyError(name)
    return found


def field_names(kind: Kind, *, is_number: bool = False) -> list[str]:
    """What may be written, for whoever wrote something else."""
    names = [*PAYLOADS[kind].names, *ENVELOPE]
    found = [field for name in names if (field := find_field(kind, name)) and (field.is_number or not is_number)]
    labels = [f"{LABELS}.NAME"] if kind is Kind.SAMPLE and not is_number else []
    return [*labels, *(field.name for field in found)]
