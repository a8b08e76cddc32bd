"""What an operator may set, for one home: `platform.toml`, typed, with a safe default for everything.

Belongs here: the settings, their bounds and how they are read. Does not belong here: what a run is asked to do
(command line), or where things lie (`home.py`).
"""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from resources.errors import ConfigurationError
from resources.timegrid import to_us

# Names become folder names, partition values and SQL identifiers, so they are plain before they get anywhere.
NAME_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"

TEMPLATE = """\
# Settings of this Tidemark home. Every line shows its default; remove the '#' to change one.

# shards = 1                                    # coordinators with a log of their own; fixed once data is in
# earliest_event_ts = 2024-12-30T00:00:00Z      # older events are refused as too_old
# clock_skew_ms = 300_000                       # events further ahead of the clock are refused as from_the_future
# disorder_ms = 5_000                           # how far out of order a producer may send
# idle_timeout_ms = 30_000                      # a producer silent for longer holds no watermark back
# watermark_events = 100                        # a producer's watermark moves after this many events of its own
# watermark_ms = 1_000                          # and after this much time, when silence is noticed too
# segment_bytes = 67_108_864                    # a log file of this size is sealed into a segment
# segment_age_ms = 60_000                       # and so is one of this age
# recent_identities = 1_000_000                 # how many delta identities a shard remembers exactly

# [namespaces.shop]
# dimension = 384                               # length of this namespace's vectors; without it none is enforced

# [spark]
# master = "local[*]"                           # any Spark master
# driver_memory = "3g"
"""


class Namespace(Struct, frozen=True, forbid_unknown_fields=True):
    """What is declared about one namespace."""

    dimension: Annotated[int, Meta(ge=1, le=65_536)] | None = None


class SparkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the batch plane gets its session."""

    # All cores of this machine: the batch plane is not latency-bound, and the live plane needs little.
    master: str = "local[*]"
    # A week's backfill of the demo's size fits many times; the default of 1 GB does not fit a large drain.
    driver_memory: str = "3g"
    # Anything else, as Spark names it.
    conf: dict[str, str] = {}


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a platform; each default is the one a careful operator would keep."""

    # One shard carries a million deltas a second; more are for more machines. The map of slots is by this number.
    shards: Annotated[int, Meta(ge=1, le=1024)] = 1
    # A Monday, so that the first week is whole. Every hour since is a partition of the orchestrator.
    earliest_event_ts: datetime = datetime(2024, 12, 30, tzinfo=UTC)
    # Five minutes is more than any clock under NTP is wrong, and less than a late hour.
    clock_skew_ms: Annotated[int, Meta(ge=0)] = 300_000
    # Most producers flush within seconds; what is older than this is late, not lost.
    disorder_ms: Annotated[int, Meta(ge=0)] = 5_000
    # Long enough for a pause for breath, short enough that a stopped producer does not stop the others.
    idle_timeout_ms: Annotated[int, Meta(ge=1)] = 30_000
    # Few enough that a busy stream's watermark follows it closely, many enough that single writes cost nothing.
    watermark_events: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    # A fifth of the disorder, so that waiting for the next step makes windows hardly later; one message a step at most.
    watermark_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 1_000
    # Large enough for Parquet to be efficient, small enough to recover from in a second.
    segment_bytes: Annotated[int, Meta(ge=4_096)] = 64 * 1024 * 1024
    # The lake is at most a minute behind a busy shard.
    segment_age_ms: Annotated[int, Meta(ge=1)] = 60_000
    # About a second of the fastest traffic, hours of the usual; what lies beyond it is decided by the drain.
    recent_identities: Annotated[int, Meta(ge=0)] = 1_000_000
    namespaces: dict[str, Namespace] = {}
    spark: SparkSettings = SparkSettings()

    @property
    def earliest_event_us(self) -> int:
        """`earliest_event_ts` in microseconds."""
        return to_us(self.earliest_event_ts)


def read_settings(path: Path) -> Settings:
    """Read `platform.toml`; a missing file means all defaults."""
    try:
        raw = tomllib.loads(path.read_text()) if path.exists() else {}
        settings = msgspec.convert(raw, Settings)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(
            f"{path} is not usable: {error}. Correct that line; the file's comments show every setting."
        ) from error
    if settings.earliest_event_ts.tzinfo is None:
        raise ConfigurationError(f"{path}: earliest_event_ts has no time zone. Write it as 2024-12-30T00:00:00Z.")
    for name in settings.namespaces:
        if not re.match(NAME_PATTERN, name):
            raise ConfigurationError(
                f"{path}: the namespace {name!r} is not a plain name. "
                "Use a lower-case letter, then up to 62 of a-z, 0-9 and _."
            )
    return settings
