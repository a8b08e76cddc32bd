"""What a write was answered with: every delta's outcome, and how safe they are (W8).

Belongs here: the answer's form, and how it is made from what the coordinator says. A write may hold the deltas of
several requests; each is told of its own.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from tidemark.client.in_flight import Written
from tidemark.wire.messages import LevelName, RefusedDelta


class Retry(StrEnum):
    """What makes sending the same request again safe."""

    BY_NUMBER = "by number"  # the producer's, which is exact for ever
    BY_KEY = "by key"  # the idempotency key, for a day
    BY_IDENTITY = "by identity"  # of each delta: a copy is recognised as a duplicate


class Refusal(Struct, frozen=True):
    """One delta that was refused."""

    at: int  # its place in the request, from 0
    reason: str
    detail: str


class WriteAnswer(Struct, frozen=True, omit_defaults=True):
    """What became of a write. Counts are null where they are not known: see `is_retry` and `level`."""

    level: LevelName | None  # that all of it has reached; null: only parts of it were taken
    epochs: dict[int, int]  # shard → an epoch by which it is there
    accepted: int | None
    duplicate: int | None
    refused: list[Refusal]  # the first hundred
    refused_count: int | None
    retry: Retry
    is_retry: bool = False  # it was taken earlier, and nothing was taken now; counts are told once
    not_taken: list[int] = []  # places of deltas whose shard had no room: send the same request again
    retry_after_ms: int | None = None


_encoder = msgspec.json.Encoder()


def encode_answer(answer: Struct) -> bytes:
    """The body of an answer."""
    return _encoder.encode(answer)


def whole_answer(written: Written, retry: Retry) -> WriteAnswer:
    """The answer for a request that was a write of its own."""
    is_known = not written.is_retry and written.level is not LevelName.APPLIED
    return WriteAnswer(
        level=written.level,
        epochs=written.epochs,
        accepted=written.accepted if is_known else None,
        duplicate=written.duplicate if is_known else None,
        refused=_refusals(written.refusals, 0),
        refused_count=written.refused if is_known else None,
        retry=retry,
        is_retry=written.is_retry,
    )


def part_answer(written: Written, start: int, rows: int) -> WriteAnswer:
    """The answer for a request whose deltas were these of a shared write."""
    refused = [each for each in written.refusals if start <= each.ordinal < start + rows]
    duplicate = sum(start <= ordinal < start + rows for ordinal in written.duplicates)
    is_known = (
        not written.is_retry
        and written.level is not LevelName.APPLIED
        and len(written.refusals) == written.refused
        and len(written.duplicates) == written.duplicate
    )
    return WriteAnswer(
        level=written.level,
        epochs=written.epochs,
        accepted=rows - len(refused) - duplicate if is_known else None,
        duplicate=duplicate if is_known else None,
        refused=_refusals(refused, start),
        refused_count=len(refused) if is_known else None,
        retry=Retry.BY_IDENTITY,
        is_retry=written.is_retry,
    )


def partial_answer(not_taken: Sequence[int], retry: Retry, retry_after_ms: int | None) -> WriteAnswer:
    """The answer for a write that only some shards took."""
    return WriteAnswer(
        level=None,
        epochs={},
        accepted=None,
        duplicate=None,
        refused=[],
        refused_count=None,
        retry=retry,
        not_taken=list(not_taken),
        retry_after_ms=retry_after_ms,
    )


def _refusals(refusals: Sequence[RefusedDelta], start: int) -> list[Refusal]:
    return [Refusal(each.ordinal - start, each.reason, each.detail) for each in refusals]
