"""The words of the live plane: kinds, verdicts, reasons, levels, and a delta as a producer writes it.

Belongs here: enums and plain structs without behaviour. How a delta is decoded is in `decode.py`, what is wrong
with one in `checks.py`, how it lies in the log in `schema.py`.
"""

from datetime import datetime
from enum import IntEnum, StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """What a delta is about."""

    VECTOR = "vector"
    SAMPLE = "sample"
    SIGNAL = "signal"


class Source(StrEnum):
    """How a delta came here."""

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
    """Why a delta was refused, or set aside by the drain."""

    MALFORMED = "malformed"  # not one JSON object
    UNKNOWN_FIELD = "unknown_field"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_KIND = "unknown_kind"
    PAYLOAD_MISMATCH = "payload_mismatch"  # not exactly the payload that the kind promises
    UNKNOWN_OPERATION = "unknown_operation"
    BAD_NAME = "bad_name"
    EMPTY_ID = "empty_id"
    BAD_ID = "bad_id"  # too long, or with control characters
    BAD_TIMESTAMP = "bad_timestamp"
    TOO_OLD = "too_old"
    BELOW_HORIZON = "below_horizon"  # a change to what a vector was before its history was compacted
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
    DUPLICATE = "duplicate"  # a copy that only the drain could see


class Vector(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Payload of a vector delta: one operation with what it needs, and what any of them may carry."""

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

    `event_ts` is a moment (without a time zone it is UTC; in JSON, ISO 8601 text) or microseconds since 1970.
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
