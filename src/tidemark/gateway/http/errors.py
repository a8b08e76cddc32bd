"""What a caller is told when a request is not answered: one shape, and a status for each reason.

    {"error": {"reason": "sequence_gap", "message": "…", "expected": 17}}

Belongs here: that shape, and which status goes with which reason (W8). The sentences are those of whoever refused.
"""

import math

import msgspec
from msgspec import Struct

from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Nack


class ErrorBody(Struct, frozen=True, omit_defaults=True):
    """Why there is no answer."""

    reason: str  # for programs
    message: str  # for people
    expected: int | None = None  # the number to send, after a gap
    # The number of the write is used up although nothing of it was taken: go on with the next one.
    is_number_used: bool = False
    retry_after_ms: int | None = None


class ErrorAnswer(Struct, frozen=True):
    """The body of every answer that is no success."""

    error: ErrorBody


class HttpError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        expected: int | None = None,
        is_number_used: bool = False,
        retry_after_ms: int | None = None,
        allow: str | None = None,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(reason, message, expected, is_number_used, retry_after_ms)
        self.allow = allow  # the method that there is
        self.closes = closes  # the rest of the request is not read, so nothing can follow it on this connection

    def encode(self) -> bytes:
        """The body of the answer."""
        return msgspec.json.encode(ErrorAnswer(self.body))

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the answer."""
        found = [(b"content-type", b"application/json")]
        if self.body.retry_after_ms is not None:
            found.append((b"retry-after", b"%d" % max(1, math.ceil(self.body.retry_after_ms / 1_000))))
        if self.status == 401:
            found.append((b"www-authenticate", b'Bearer realm="tidemark"'))
        if self.allow is not None:
            found.append((b"allow", self.allow.encode()))
        if self.closes:
            found.append((b"connection", b"close"))
        return found


# Where a reason of the protocol has a status of its own in HTTP. Nothing was taken with any of them.
_STATUS = {
    NackReason.SEQUENCE_GAP: 409,
    NackReason.NUMBER_REUSE: 409,
    NackReason.REFUSED_BEFORE: 409,
    NackReason.FENCED: 409,
    NackReason.NUMBERING: 409,
    NackReason.UNAUTHENTICATED: 401,
    NackReason.NOT_ALLOWED: 403,
    NackReason.BAD_PAYLOAD: 400,
    NackReason.BAD_COMPRESSION: 400,
    NackReason.BAD_HELLO: 400,
    NackReason.NOT_SUPPORTED: 400,
    NackReason.TOO_LARGE: 413,
    NackReason.PAYLOAD_TOO_LARGE: 413,
    NackReason.BACKPRESSURE: 429,
    NackReason.RATE: 429,
    NackReason.LAG: 429,
    NackReason.JITTER: 429,
    NackReason.SHED: 429,
    NackReason.STOPPED: 503,
    NackReason.TOO_MANY_CONNECTIONS: 503,
    NackReason.OUTCOME_UNKNOWN: 504,
}
# When whoever turned it away does not say.
RETRY_AFTER_MS = 1_000


def of_nack(nack: Nack) -> HttpError:
    """The answer for what the coordinator did not take."""
    status = _STATUS.get(nack.reason, 502)
    retry_after_ms = nack.retry_after_ms or (RETRY_AFTER_MS if status in {429, 503} else None)
    return HttpError(
        status,
        str(nack.reason),
        nack.message,
        expected=nack.expected,
        is_number_used=nack.is_final,
        retry_after_ms=retry_after_ms,
    )
