"""Watermarks across shards: what an idle shard takes over from the others, and how far a stream is as a whole (T2).

Belongs here: two pure functions over what every shard has logged. A shard that gets no writes would keep a stream's
watermark where it was for ever, and its next write would be stamped with a promise that the others gave long before.
So it adopts the least that the active shards have logged: never more than any of them, so that every later stamp of the
idle shard is one that each active shard has passed. If no shard is active, nothing moves.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tidemark.model.event_time_rules import Stream, parse_stream


class ShardView(NamedTuple):
    """What others may know of a shard: only what is on its disk."""

    shard: int
    logged: Mapping[str, int]  # "namespace/kind" → greatest watermark in its log
    active: AbstractSet[str]  # streams in which it has a producer that is not idle


class Adoption(NamedTuple):
    """A shard is to adopt this watermark; it refuses if a producer has begun to send there meanwhile."""

    shard: int
    stream: Stream
    watermark_us: int


def align(views: Sequence[ShardView]) -> list[Adoption]:
    """Which shard must adopt what, given the views of all shards of the platform."""
    adoptions: list[Adoption] = []
    for name in sorted({name for view in views for name in view.logged}):
        active = [view for view in views if name in view.active]
        # An active shard that has logged no watermark yet has promised nothing, so the idle ones must not either.
        if not active or any(name not in view.logged for view in active):
            continue
        least = min(view.logged[name] for view in active)
        adoptions.extend(
            Adoption(view.shard, parse_stream(name), least)
            for view in views
            if name not in view.active and (name not in view.logged or view.logged[name] < least)
        )
    return adoptions


def stream_watermarks(views: Sequence[ShardView]) -> dict[str, int]:
    """`namespace/kind` → watermark of the stream: the least logged over all shards.

    A stream has none until every shard has one. Each shard's only rises, so this only rises: it would fall if shards
    without one were left out.
    """
    names = set.intersection(*(set(view.logged) for view in views)) if views else set()
    return {name: min(view.logged[name] for view in views) for name in sorted(names)}
