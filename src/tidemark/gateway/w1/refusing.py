"""What is said of a write that was not taken: each error of a shard in the words of the protocol.

Belongs here: that table.
"""

from tidemark.model.errors import TidemarkError
from tidemark.model.shard_errors import (
    BackpressureError,
    EmptyWriteError,
    NumberingError,
    NumberReuseError,
    OutcomeUnknownError,
    ProducerFencedError,
    SequenceGapError,
    ShardStoppedError,
    WriteFormatError,
    WriteRefusedError,
    WriteTooLargeError,
)
from tidemark.wire.errors import NackReason, WireError
from tidemark.wire.messages import Nack

# Final: the number is used up. Closing: the peer can do nothing more here.
_WORDS: tuple[tuple[type[Exception], NackReason, bool, bool], ...] = (
    (NumberReuseError, NackReason.NUMBER_REUSE, True, False),
    (WriteRefusedError, NackReason.REFUSED_BEFORE, True, False),
    (WriteTooLargeError, NackReason.TOO_LARGE, True, False),
    (WriteFormatError, NackReason.BAD_PAYLOAD, True, False),
    (EmptyWriteError, NackReason.BAD_PAYLOAD, True, False),
    (ProducerFencedError, NackReason.FENCED, False, True),
    (NumberingError, NackReason.NUMBERING, False, True),
    (OutcomeUnknownError, NackReason.OUTCOME_UNKNOWN, False, True),
    (ShardStoppedError, NackReason.STOPPED, False, True),
)


def nack_of(error: Exception) -> Nack:
    """The refusal of a write because of this error."""
    if isinstance(error, BackpressureError):
        return Nack(NackReason.BACKPRESSURE, str(error), retry_after_ms=round(error.retry_after_s * 1_000))
    if isinstance(error, SequenceGapError):
        return Nack(NackReason.SEQUENCE_GAP, str(error), expected=error.expected)
    if isinstance(error, WireError):
        return Nack(error.reason, str(error), is_final=True)
    for kind, reason, is_final, closes in _WORDS:
        if isinstance(error, kind):
            return Nack(reason, str(error), is_final=is_final, closes=closes)
    said = str(error) if isinstance(error, TidemarkError) else f"The shard failed: {error}"
    return Nack(NackReason.STOPPED, said, closes=True)
