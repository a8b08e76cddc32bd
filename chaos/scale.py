"""Sizes in a simulation: tiny, so that every limit is met within a few writes.

Belongs here: settings and numbers, drawn by seed.
"""

from pathlib import Path
from random import Random
from typing import NamedTuple

from chaos.traffic import KINDS, NAMESPACES
from tidemark.model.event_time_rules import EventTimeRules, StreamRule
from tidemark.model.settings import BatchSettings, BoundSettings, Settings
from tidemark.shard_state.recovery import ShardFiles

FILES = ShardFiles(0, Path("/home/log/0"), Path("/home/segments/0"))
KEEP_FREE = 10_000
# Disorder and idle timeout of streams with rules of their own: below, at and above those of the settings.
OWN_RULES = ((0, 1_000_000), (1_000_000, 3_000_000), (4_000_000, 20_000_000))


class Scale(NamedTuple):
    """One seed's sizes."""

    settings: Settings
    group_bytes: int
    reserved_ahead: int
    lives: int  # before the last one, in which nothing goes wrong
    steps: int  # of a life, at most
    producers: int
    writes: int  # of a producer

    @property
    def most_deltas(self) -> int:
        """The most deltas in one write."""
        return self.settings.bounds.deltas


def draw_rules(random: Random, settings: Settings) -> EventTimeRules:
    """The rules of one life: those of the settings, or with rules of their own for some streams, new in every life."""
    streams = [(namespace, kind) for namespace in NAMESPACES for kind in KINDS]
    own = {stream: StreamRule(*random.choice(OWN_RULES)) for stream in streams if random.random() < 0.3}
    return EventTimeRules.of(settings, own)


def draw_scale(random: Random) -> Scale:
    """Sizes for one seed. Most are short: bugs are found by many beginnings, not by a long middle."""
    is_long = random.random() < 0.03
    settings = Settings(
        segment_bytes=random.choice((1_500, 4_096, 16_000)),
        segment_age_ms=2_000,
        quiet_segment_age_ms=20_000,
        quiet_segment_bytes=2_000,
        recent_identities=random.choice((0, 5, 8, 8, 8, 40)),
        disorder_ms=1_000,
        idle_timeout_ms=5_000,
        watermark_events=random.choice((2, 5, 20)),
        watermark_ms=200,
        bounds=BoundSettings(
            # A flushed group that waits for its batch counts with at least 36 KB.
            bytes=random.choice((45_000, 90_000, 1_000_000)),
            deltas=random.choice((7, 12, 40)),
            disk_keep_free_bytes=KEEP_FREE,
        ),
        batch=BatchSettings(min_ms=1, max_ms=random.choice((5, 500)), target_writes=3, count=8),
    )
    return Scale(
        settings,
        group_bytes=random.choice((100, 700, 2_000)),
        reserved_ahead=random.choice((1, 2, 5)),
        lives=random.choice((1, 1, 1, 2, 2)) if not is_long else 6,
        steps=random.choice((10, 16, 24)) if not is_long else 40,
        producers=random.choice((1, 2, 2, 3)),
        writes=random.choice((2, 3, 4)) if not is_long else 8,
    )
