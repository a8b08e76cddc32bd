"""The stored form of a refused delta: the bytes that were sent, or JSON of the object that was passed (C14).

Belongs here: the form, and how much is kept. Each of a write's first refused deltas keeps 16 KiB, until their full size
reaches a budget; after that only a short beginning is rendered and kept. So the work is bounded, and not only the
space. Both doors keep the same bytes.
"""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from tidemark.door.decoded import DecodedBatch, Sent
from tidemark.model.deltas import PAYLOADS, Delta
from tidemark.model.log_schema import RAW_BUDGET, RAW_LIMIT, RAW_SHORT

# So many elements of a list take more bytes than are kept of a delta beyond the budget.
FEW_ELEMENTS = RAW_SHORT // 2
_json = json.JSONEncoder(default=str)


class Beginning(bytes):
    """The beginning of a delta that was rendered before; `length` is its full length."""

    length: int

    @classmethod
    def of(cls, raw: bytes, length: int) -> "Beginning":
        """The first bytes of a text of this length."""
        made = cls(raw)
        made.length = length
        return made


class Kept(NamedTuple):
    """The stored bytes of one refused delta."""

    raw: bytes
    length: int  # of the whole delta; if only a beginning was rendered, the length of that


def original_bytes(sent: Sent) -> bytes:
    """The delta as bytes: as they came, or as JSON if it was an object."""
    if isinstance(sent, bytes):
        return sent
    if isinstance(sent, str):
        return sent.encode("utf-8", "backslashreplace")
    try:
        if isinstance(sent, Delta):
            sent = msgspec.to_builtins(sent, builtin_types=(datetime,))
        return _json.encode(sent).encode("utf-8", "backslashreplace")
    except Exception:  # noqa: BLE001 - it is shown to people: what JSON cannot say is shown as Python does
        return _shown(sent)


def keep_originals(rows: Iterable[int], write_of: Callable[[int], int], decoded: DecodedBatch) -> dict[int, Kept]:
    """The stored bytes of refused rows, which come in order; `write_of` says which write's budget a row counts for."""
    kept: dict[int, Kept] = {}
    beyond: list[int] = []
    for _, run in groupby(rows, write_of):
        refused = list(run)
        room = RAW_BUDGET - RAW_LIMIT
        for place, sent in enumerate(decoded.originals(refused, False)):
            if room <= 0:  # from here on, even if the next one is short: so only the order of rows decides
                beyond += refused[place:]
                break
            found = kept[refused[place]] = _kept(sent, RAW_LIMIT)
            room -= found.length
    for row, sent in zip(beyond, decoded.originals(beyond, True), strict=True):
        kept[row] = _kept(cut(sent), RAW_SHORT)
    return kept


def _kept(sent: Sent, most: int) -> Kept:
    whole = original_bytes(sent)
    return Kept(whole[:most], sent.length if isinstance(sent, Beginning) else len(whole))


def cut(sent: Sent) -> Sent:
    """Enough of a delta to render its beginning: the same, with only a few elements of its lists."""
    if isinstance(sent, Delta):
        sent = msgspec.to_builtins(sent, builtin_types=(datetime,))
    if type(sent) is not dict:
        return sent
    return {name: _cut_fields(value) if name in PAYLOADS else value for name, value in sent.items()}


def _cut_fields(payload: Any) -> Any:
    if type(payload) is not dict:
        return payload
    return {
        name: value[:FEW_ELEMENTS] if type(value) is list and len(value) > FEW_ELEMENTS else value
        for name, value in payload.items()
    }


def _shown(sent: object) -> bytes:
    try:
        return repr(sent).encode("utf-8", "backslashreplace")
    except Exception:  # noqa: BLE001 - a caller's object may raise anything
        return f"<{type(sent).__name__}>".encode()
