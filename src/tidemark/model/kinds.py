"""The kinds of deltas, each declared once: the fields of its payload in the log, its key, and what it weighs (D1).

Belongs here: all that the door, the log, its segments, the tables and the definitions of streams need to know of a kind
and can read from here. It needs no Arrow: types are words, which `log_schema.py` knows. What producers write is in
`deltas.py`, how it becomes a row in `door/payloads.py`, what may be wrong with it in `verdicts/payload_checks.py`.

A kind has a column of its own in the log and in `deltas`, behind those that are there. So another kind is another
format: it needs a new `SCHEMA_VERSION`, and content hashes, which are made of all payload columns, are others.
"""

from typing import NamedTuple

from tidemark.model.deltas import Kind

SCHEMA_VERSION = 1  # of the rows in the log; frames are read without Arrow, so it is not in `log_schema.py`

# The bytes of a map of texts, in SQL.
MAP_BYTES = "coalesce(octet_length(array_join(map_keys({0}), '')) + octet_length(array_join(map_values({0}), '')), 0)"
# What compaction may remove from a vector delta weighs, by what was sent, whatever its encoding; the same before and
# after it went.
REMOVABLE_BYTES = (
    "coalesce(removed_bytes, 4 * coalesce(size(vector.values), 0) + 4 * coalesce(size(vector.indices), 0) "
    f"+ {MAP_BYTES.format('vector.metadata')})"
)


class PayloadField(NamedTuple):
    """A field of a payload, as the log has it."""

    type: str  # a word of `log_schema.TYPES`
    is_required: bool = False
    default: int | None = None
    # Kept in millionths; producers send it as a number under this name.
    millionths_of: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is one text or number, and neither a list nor a map."""
        return "<" not in self.type

    @property
    def is_map(self) -> bool:
        """Whether it is a map, in which producers choose the names."""
        return self.type.startswith("map<")


class KindRule(NamedTuple):
    """What is declared about a kind."""

    about: str  # such a delta, in words
    key_name: str  # what the key of such a delta is, in words
    fields: dict[str, PayloadField]
    bytes: str  # what it weighs besides its key, id and time, in SQL of a row of `deltas`
    key: str | None = None  # the field that says what the delta is about
    labels: str | None = None  # without a key: the map by whose fingerprint a series is known
    few: tuple[str, ...] = ()  # fields of few values: a segment has dictionaries of them
    near: tuple[str, ...] = ()  # fields of numbers near one another: a segment has their differences

    @property
    def maps(self) -> tuple[str, ...]:
        """The fields that are maps."""
        return tuple(name for name, field in self.fields.items() if field.is_map)


TEXT, NEEDED_TEXT = PayloadField("string"), PayloadField("string", is_required=True)
NUMBER = PayloadField("double")

KINDS: dict[Kind, KindRule] = {
    Kind.VECTOR: KindRule(
        about="a vector delta",
        key_name="vector id",
        fields={
            "vector_id": NEEDED_TEXT,
            "op": NEEDED_TEXT,
            "values": PayloadField("list<float>"),
            "indices": PayloadField("list<int32>"),
            "factor": NUMBER,
            "amount": NUMBER,
            "parent_id": TEXT,
            "clock": PayloadField("map<string, int64>"),
            "metadata": PayloadField("map<string, string>"),
        },
        bytes=(
            "octet_length(vector.op) + if(vector.factor IS NULL, 0, 8) + if(vector.amount IS NULL, 0, 8) "
            f"+ coalesce(octet_length(vector.parent_id), 0) + {REMOVABLE_BYTES} "
            "+ coalesce(octet_length(array_join(map_keys(vector.clock), '')) + 8 * size(vector.clock), 0)"
        ),
        key="vector_id",
        few=("op",),
    ),
    Kind.SAMPLE: KindRule(
        about="a time-series sample",
        key_name="series fingerprint",
        fields={
            "labels": PayloadField("map<string, string>", is_required=True),
            "value": PayloadField("double", is_required=True),
        },
        bytes=f"{MAP_BYTES.format('sample.labels')} + 8",
        labels="labels",
    ),
    Kind.SIGNAL: KindRule(
        about="a signal event",
        key_name="entity id",
        fields={
            "entity_id": NEEDED_TEXT,
            "signal": NEEDED_TEXT,
            "count": PayloadField("int64", default=1),
            "weight_millionths": PayloadField("int64", millionths_of="weight"),
        },
        bytes="octet_length(signal.signal) + 16",
        key="entity_id",
        few=("signal", "count"),
        near=("weight_millionths",),
    ),
}

# The columns of payloads: one for each kind, of its name and in the order of the log.
PAYLOADS: tuple[str, ...] = tuple(kind.value for kind in KINDS)
# By payload: the field that is the key, or the labels by which a series is known.
KEY_FIELDS = {kind.value: rule.key for kind, rule in KINDS.items() if rule.key}
SERIES_LABELS = {kind.value: rule.labels for kind, rule in KINDS.items() if rule.labels}


def listed(words: tuple[str, ...]) -> str:
    """Words as a sentence has them: the last one behind an "or"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"
