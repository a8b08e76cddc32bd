"""The words of the live plane: kinds, verdicts, reasons, levels, and a delta as producers write it and the log has it.

Belongs here: enums, plain structs, and the declaration of each kind, which the door, the log, its segments, the tables,
their suites and the definitions of streams read (D1). It needs no Arrow: types are words, which `log_schema.py` knows.
`door/payloads.py` turns a payload into a row, `verdicts/payload_checks.py` checks it; operations on vectors are in
`operations.py`.

Each kind has its own column in the log and in `deltas`, after the existing ones. So a new kind changes the format: it
needs a new `SCHEMA_VERSION`, and it changes content hashes, which are made of all payload columns.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import NamedTuple

from msgspec import Struct


class Kind(StrEnum):
    """What a delta is about."""

    VECTOR = "vector"
    SAMPLE = "sample"
    SIGNAL = "signal"


class Source(StrEnum):
    """How a delta got here."""

    LOCAL = "local"
    REPLICA = "replica"
    IMPORT = "import"
    TRANSFORM = "transform"


class Priority(StrEnum):
    """How urgent a producer says a delta is."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Level(IntEnum):
    """How safe a write is, in order (C2)."""

    APPLIED = 1
    FLUSHED = 2
    DURABLE = 3


class Verdict(StrEnum):
    """What became of a delta, decided once at arrival (Q3)."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


class Reason(StrEnum):
    """Why a delta was refused, or why the drain put it into `dead_letters`."""

    MALFORMED = "malformed"  # not one JSON object
    UNKNOWN_FIELD = "unknown_field"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_KIND = "unknown_kind"
    PAYLOAD_MISMATCH = "payload_mismatch"  # not exactly the payload of the kind
    UNKNOWN_OPERATION = "unknown_operation"
    BAD_NAME = "bad_name"
    EMPTY_ID = "empty_id"
    BAD_ID = "bad_id"  # too long, or with control characters
    BAD_TIMESTAMP = "bad_timestamp"
    TOO_OLD = "too_old"
    BELOW_HORIZON = "below_horizon"  # a change to a vector before the cut of its history
    FROM_THE_FUTURE = "from_the_future"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    WRONG_DIMENSION = "wrong_dimension"
    INDEX_OUT_OF_RANGE = "index_out_of_range"
    REPEATED_INDEX = "repeated_index"
    SELF_PARENT = "self_parent"
    NO_LABELS = "no_labels"
    TOO_LARGE = "too_large"
    FINGERPRINT_COLLISION = "fingerprint_collision"
    ID_REUSE = "id_reuse"  # another delta under the same identity
    DUPLICATE = "duplicate"  # a duplicate that only the drain could find


class Vector(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Payload of a vector delta: one operation with its operands, and the fields that any operation may have."""

    vector_id: str
    op: str
    values: list[float] | None = None
    indices: list[int] | None = None
    factor: float | None = None
    amount: float | None = None
    parent_id: str | None = None
    clock: dict[str, int] | None = None
    metadata: dict[str, str | None] | None = None


class Sample(Struct, forbid_unknown_fields=True):
    """Payload of a time-series sample."""

    labels: dict[str, str]
    value: float


class Signal(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Payload of a signal event. A negative count is a retraction; the weight keeps six decimals."""

    entity_id: str
    signal: str
    count: int = 1
    weight: float = 0.0


class Delta(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One change, as a producer writes it: the envelope and exactly one payload.

    `event_ts` is a datetime (without a time zone it is UTC; in JSON, ISO 8601 text) or microseconds since 1970.
    """

    namespace: str
    kind: str
    delta_id: str
    event_ts: datetime | int
    priority: str = Priority.NORMAL
    source: str = Source.LOCAL
    origin: str | None = None
    vector: Vector | None = None
    sample: Sample | None = None
    signal: Signal | None = None


# Of the rows in the log. It is defined here, and not in `log_schema.py`, because frames are read without Arrow.
SCHEMA_VERSION = 1

# The bytes of a map of texts, in SQL.
MAP_BYTES = "coalesce(octet_length(array_join(map_keys({0}), '')) + octet_length(array_join(map_values({0}), '')), 0)"
# The size of what compaction may remove from a vector delta: by its content, whatever the encoding, and the same before
# and after removal.
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
        """Whether it is a single text or number, and not a list or a map."""
        return "<" not in self.type

    @property
    def is_map(self) -> bool:
        """Whether it is a map, in which producers choose the names."""
        return self.type.startswith("map<")


class KindRule(NamedTuple):
    """The declaration of a kind."""

    name: str  # such a delta, in short
    about: str  # and in more words
    key_name: str  # the key of such a delta, in words
    fields: dict[str, PayloadField]
    bytes: str  # its size besides its key, id and time, in SQL of a row of `deltas`
    sound: str  # rules for its payload in `deltas`, in SQL, stated independently for that table's suite
    key: str | None = None  # the field that is the key
    labels: str | None = None  # without a key: the map whose fingerprint identifies a series
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
        name="a vector delta",
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
        sound="vector.op IS NOT NULL AND vector.vector_id = key",
        key="vector_id",
        few=("op",),
    ),
    Kind.SAMPLE: KindRule(
        name="a sample",
        about="a time-series sample",
        key_name="series fingerprint",
        fields={
            "labels": PayloadField("map<string, string>", is_required=True),
            "value": PayloadField("double", is_required=True),
        },
        bytes=f"{MAP_BYTES.format('sample.labels')} + 8",
        sound="sample.value IS NOT NULL",
        labels="labels",
    ),
    Kind.SIGNAL: KindRule(
        name="a signal",
        about="a signal event",
        key_name="entity id",
        fields={
            "entity_id": NEEDED_TEXT,
            "signal": NEEDED_TEXT,
            "count": PayloadField("int64", default=1),
            "weight_millionths": PayloadField("int64", millionths_of="weight"),
        },
        bytes="octet_length(signal.signal) + 16",
        sound="signal.count IS NOT NULL AND signal.entity_id = key",
        key="entity_id",
        few=("signal", "count"),
        near=("weight_millionths",),
    ),
}

# The columns of payloads: one for each kind, of its name and in the order of the log.
PAYLOADS: tuple[str, ...] = tuple(kind.value for kind in KINDS)
# Most deltas are signals: where these have a way of their own, all other payloads are null.
OTHERS = tuple(payload for payload in PAYLOADS if payload != Kind.SIGNAL)
# By payload: the field that is the key, or the labels that identify a series.
KEY_FIELDS = {kind.value: rule.key for kind, rule in KINDS.items() if rule.key}
SERIES_LABELS = {kind.value: rule.labels for kind, rule in KINDS.items() if rule.labels}


def listed(words: Sequence[str]) -> str:
    """Words as a sentence has them: the last one behind an "or"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"
