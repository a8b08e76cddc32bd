"""From a body to the payload of a write's frame.

Belongs here: the three forms that a body may have, and which namespaces it names. The deltas themselves are read
behind the coordinator's door and nowhere else (W8): here a body is only cut into deltas.
"""

from typing import NamedTuple

import msgspec

from tidemark.door.ipc_messages import look_through
from tidemark.gateway.access.tokens import ALL, Grant, NotAllowedError
from tidemark.gateway.http.errors import HttpError
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.limits import LIMITS

JSON = b"application/json"
LINES = b"application/x-ndjson"
ARROW = b"application/vnd.apache.arrow.stream"
# Also seen for JSON lines.
_ALSO_LINES = (b"application/jsonl", b"application/jsonlines", b"application/x-jsonlines")

_one = msgspec.json.Decoder(msgspec.Raw)
_many = msgspec.json.Decoder(list[msgspec.Raw])
_SPACE = b" \t\r\n"


class Content(NamedTuple):
    """The payload of one write."""

    kind: FrameType
    payload: bytes
    rows: int

    @property
    def flags(self) -> Flag:
        """As its frame has to have them."""
        return Flag.WANTS_ACK | Flag.BATCHED


def content_type(value: bytes | None) -> bytes:
    """The form of a body; raises `HttpError` with 415 for one that is not known."""
    name = (value or b"").partition(b";")[0].strip().lower()
    if name in _ALSO_LINES:
        return LINES
    if name not in {JSON, LINES, ARROW}:
        said = f"{name.decode('latin-1')!r} is no form of deltas" if name else "There is no content type"
        raise HttpError(
            415,
            "bad_content_type",
            f"{said}. Send {JSON.decode()}, {LINES.decode()} (one delta on each line) or {ARROW.decode()}.",
            closes=True,
        )
    return name


def read_content(form: bytes, body: bytes) -> Content:
    """The payload that a body makes; raises `HttpError` if nothing can be numbered."""
    if form == ARROW:
        return _read_arrow(body)
    if form == LINES:
        lines = body.count(b"\n") + 1
        if lines > LIMITS.rows + 1:
            raise _too_many(lines)
        rows = sum(1 for line in body.split(b"\n") if line and not line.isspace())
        if not rows:
            raise _empty()
        return Content(FrameType.DELTA, body, rows)
    return _read_json(body)


def _read_arrow(body: bytes) -> Content:
    """What the stream claims is looked at, and nothing is unpacked: that is done behind the coordinator's door."""
    if not body:
        raise _empty()
    try:
        rows = look_through(memoryview(body), LIMITS).rows
    except PayloadError as error:
        status = 413 if error.reason is NackReason.TOO_LARGE else 400
        raise HttpError(status, str(error.reason), str(error)) from error
    if not rows:
        raise _empty()
    return Content(FrameType.BATCH, body, rows)


def _read_json(body: bytes) -> Content:
    start = body.lstrip(_SPACE)[:1] if body[:1] in (b" ", b"\t", b"\r", b"\n") else body[:1]
    try:
        found = _many.decode(body) if start == b"[" else [_one.decode(body)]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HttpError(
            400,
            str(NackReason.BAD_PAYLOAD),
            f"The body is not JSON: {error}. Nothing was taken. In JSON lines a bad line would cost no other one.",
        ) from error
    if start not in (b"[", b"{"):
        raise HttpError(400, str(NackReason.BAD_PAYLOAD), "A body is one delta, an object, or an array of deltas.")
    if not found:
        raise _empty()
    if len(found) > LIMITS.rows:
        raise _too_many(len(found))
    # Line breaks in JSON that could be read are between its parts.
    deltas = [bytes(each).replace(b"\n", b" ") for each in found]
    return Content(FrameType.DELTA, b"\n".join(deltas), len(deltas))


def require_write(grant: Grant, content: Content) -> None:
    """Raise if a delta is for a namespace that the caller may not write to; then nothing is taken."""
    if grant.may_write(ALL):
        return
    from tidemark.gateway.w1.write_frames import namespaces_of, read_write  # needs Arrow
    from tidemark.wire.frames import Frame

    frame = Frame(content.kind, content.flags, 0, content.payload)
    try:
        namespaces = namespaces_of(read_write(frame, LIMITS))
    except PayloadError as error:
        raise HttpError(400, str(error.reason), str(error)) from error
    for namespace in sorted(namespaces):
        grant.require_write(namespace)
    if not namespaces and not grant.scopes.writes:
        raise NotAllowedError(f"{grant.name!r} may not write. Ask the operator for a token with the scope write:*.")


def _empty() -> HttpError:
    return HttpError(400, str(NackReason.BAD_PAYLOAD), "The body has no deltas: there is nothing to number.")


def _too_many(found: int) -> HttpError:
    return HttpError(
        413,
        str(NackReason.TOO_LARGE),
        f"The body has {found:,} deltas; {LIMITS.rows:,} may be in one request. Send several.",
    )
