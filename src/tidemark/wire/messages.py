"""What the frames say that are not writes: hello, acknowledgement, refusal, flow, subscription (W4 to W7).

Belongs here: one struct for each, and its JSON. Fields may be added; unknown ones are ignored, so that the two sides
can be of different age.
"""

from enum import StrEnum
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tidemark.model.deltas import Priority
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.limits import LIMITS, Limits

# Of refusals, an acknowledgement names so many.
FIRST_REFUSALS = 100
# And of each write so many of its duplicates.
FIRST_DUPLICATES = 100
HEARTBEAT_MS = 15_000
# A peer that has said nothing for two heartbeats is gone.
SILENCE_MS = 2 * HEARTBEAT_MS

# What a peer may name: a shard, an epoch, an instance. A number of any size would be an error somewhere further in.
Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Role(StrEnum):
    """What a connection is for."""

    PRODUCER = "producer"
    SUBSCRIBER = "subscriber"
    REPLICA = "replica"


class LevelName(StrEnum):
    """How safe a write is, by name: `model.deltas.Level` in words."""

    APPLIED = "applied"
    FLUSHED = "flushed"
    DURABLE = "durable"


class Hello(Struct, frozen=True, omit_defaults=True):
    """The first frame of a client: a heartbeat with sequence 0."""

    role: Role = Role.PRODUCER
    token: str | None = None
    producer: str | None = None  # needed by producers
    shard: Number | None = None  # None: any, and a number goes to every shard (W5)
    # The instance that this client had before; the answer is `fenced` if another has opened the producer since.
    # 0 takes over from any.
    instance: Number = 0
    levels: tuple[LevelName, ...] = (LevelName.FLUSHED,)  # which acknowledgements it wants
    compressions: tuple[str, ...] = ()  # which it can read: "zstd"
    priority: Priority = Priority.NORMAL
    client: str = ""  # name and version of the program, for the operator

    def __repr__(self) -> str:
        """Without the token: what is shown ends in logs and in messages of errors (W10)."""
        shown = self if self.token is None else replace(self, token="…")  # noqa: S106 - it is none
        return f"Hello({encode(shown).decode()})"


class Welcome(Struct, frozen=True):
    """The answer to a hello: a heartbeat with sequence 0."""

    instance: int  # of the producer, from now on; 0 for others
    mark: int  # the last number that was taken (Q2)
    window: int  # bytes that may be sent and not acknowledged
    shards: int
    # The shard of each of the 1024 slots, as runs: [shard, slots], [shard, slots] …
    slots: tuple[tuple[int, int], ...]
    limits: Limits = LIMITS
    heartbeat_ms: int = HEARTBEAT_MS
    compressions: tuple[str, ...] = ("zstd",)
    home: str = ""  # which platform this is: another value is another log
    server: str = ""


class Heartbeat(Struct, frozen=True, omit_defaults=True):
    """A sign of life, with a sequence other than 0. With `drain_ms` it is a goodbye: send nothing more here."""

    drain_ms: int | None = None


class RefusedDelta(Struct, frozen=True, array_like=True):
    """One delta that was refused, of the write with this number."""

    sequence: int
    ordinal: int
    reason: str
    detail: str


class WriteOutcome(Struct, frozen=True, array_like=True):
    """What became of one write whose deltas were not simply all accepted."""

    sequence: int
    accepted: int
    duplicate: int
    refused: int
    is_retry: bool = False  # it was taken earlier, and nothing was taken now
    # The first of its deltas that were duplicates: a door that puts several requests into one write tells each its own.
    duplicates: tuple[int, ...] = ()


class Ack(Struct, frozen=True, omit_defaults=True):
    """Writes have reached a level. With the flag `batched`: all up to the frame's sequence (W4).

    The counts are of the writes that no acknowledgement of this level has named before.
    """

    level: LevelName
    epochs: dict[int, int] = {}  # shard → the last epoch of these writes
    accepted: int = 0
    duplicate: int = 0
    refused: int = 0
    outcomes: tuple[WriteOutcome, ...] = ()  # of writes that were not accepted whole, in order
    refusals: tuple[RefusedDelta, ...] = ()  # the first hundred


class Nack(Struct, frozen=True, omit_defaults=True):
    """The frame with this sequence was not taken, and why."""

    reason: NackReason
    message: str
    # The number is used up: go on with the next one. Otherwise the same write may be sent again.
    is_final: bool = False
    expected: int | None = None  # the number to send, after a gap
    retry_after_ms: int | None = None
    closes: bool = False  # the server ends the connection after it
    # Of a write for several shards, one has taken its part: these deltas were not taken. The same write, sent again
    # under the same number, brings the rest. None: nothing was taken.
    not_taken: tuple[int, ...] | None = None


class Backpressure(Struct, frozen=True, omit_defaults=True):
    """How much may be sent from now on."""

    window: int
    reason: str = ""
    retry_after_ms: int = 0
    rate: float | None = None  # deltas a second; None: no limit


class Topic(Struct, frozen=True, omit_defaults=True):
    """Which deltas a subscriber wants (P2): those that have all of what is named."""

    namespace: str | None = None
    kind: str | None = None
    key: str | None = None


class DeliveryForm(StrEnum):
    """How deltas are delivered."""

    JSON = "json"
    ARROW = "arrow"


class Subscribe(Struct, frozen=True, omit_defaults=True):
    """What a subscriber wants from now on. No topics: everything."""

    topics: tuple[Topic, ...] = ()
    # shard → the last epoch that it has: what comes after is delivered. None: where its name stands, else from now.
    cursor: dict[Number, Number] | None = None
    name: str | None = None  # durable: the server remembers what was acknowledged
    max_unacked: int = 16  # deliveries
    form: DeliveryForm = DeliveryForm.JSON
    causal: bool = False
    merged: bool = False


class Subscribed(Struct, frozen=True):
    """The answer to a subscription, in a frame of the same type and sequence: what comes after this is delivered."""

    cursor: dict[int, int]


class DeliveryHead(Struct, frozen=True, omit_defaults=True):
    """What a delivery says of itself: the first line in JSON, `tidemark` in the metadata of an Arrow schema."""

    cursor: dict[int, int]  # shard → the last epoch that everything delivered so far covers
    deltas: int


_Message = TypeVar("_Message", bound=Struct)


def encode(message: Struct) -> bytes:
    """A message as the payload of its frame."""
    return msgspec.json.encode(message)


def decode(payload: bytes | memoryview, kind: type[_Message]) -> _Message:
    """A payload as a message of this kind."""
    if len(payload) > LIMITS.message_bytes:
        raise PayloadError(
            NackReason.PAYLOAD_TOO_LARGE,
            f"A {kind.__name__.lower()} has at most {LIMITS.message_bytes:,} bytes, and this one {len(payload):,}.",
        )
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise PayloadError(
            NackReason.BAD_PAYLOAD, f"This cannot be read as a {kind.__name__.lower()}: {error}."
        ) from error
