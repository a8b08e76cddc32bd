"""Why a frame or what it says is refused: a word for programs and a sentence for people.

Belongs here: the words, and the two errors of bytes from outside. What a shard says of a write is in
`model/shard_errors.py`; the door turns it into one of these words.
"""

from enum import StrEnum

from tidemark.model.errors import TidemarkError


class NackReason(StrEnum):
    """Why something was not taken."""

    # The bytes: the connection ends, because where the next frame begins is not known.
    BAD_MAGIC = "bad_magic"
    BAD_VERSION = "bad_version"
    BAD_TYPE = "bad_type"
    BAD_FLAGS = "bad_flags"
    BAD_CHECKSUM = "bad_checksum"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    # The connection: who speaks, and in which order.
    HELLO_EXPECTED = "hello_expected"
    BAD_HELLO = "bad_hello"
    UNEXPECTED = "unexpected"  # a type that this role does not send
    NOT_SUPPORTED = "not_supported"
    UNAUTHENTICATED = "unauthenticated"
    NOT_ALLOWED = "not_allowed"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TIMEOUT = "timeout"
    # The content of one frame.
    BAD_COMPRESSION = "bad_compression"
    BAD_PAYLOAD = "bad_payload"
    TOO_LARGE = "too_large"  # a write that could never be taken
    # The write, as the shard sees it.
    SEQUENCE_GAP = "sequence_gap"
    NUMBER_REUSE = "number_reuse"
    FENCED = "fenced"
    REFUSED_BEFORE = "refused_before"
    NUMBERING = "numbering"  # the producer has numbered its writes in the other way before
    # Nothing is wrong with it: it was turned away, and may come again.
    BACKPRESSURE = "backpressure"
    RATE = "rate"
    LAG = "lag"
    JITTER = "jitter"
    SHED = "shed"
    STOPPED = "stopped"
    OUTCOME_UNKNOWN = "outcome_unknown"  # whether it is there is known when the shard has been started again


class WireError(TidemarkError):
    """Bytes that follow the protocol in no way that is known; `reason` says what is wrong with them."""

    def __init__(self, reason: NackReason, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class FrameError(WireError):
    """The frame itself is wrong, so nothing after it can be read: the connection has to end."""


class PayloadError(WireError):
    """A frame arrived whole, and its content cannot be used; the next frame may be fine."""
