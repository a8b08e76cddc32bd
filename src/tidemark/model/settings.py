"""An operator's settings for one home: `platform.toml`, typed, with a safe default for everything.

Belongs here: the settings, their bounds and how they are read. Does not belong here: options of a run (command line),
or paths (`storage/home.py`).
"""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from tidemark.model.admission_settings import TEMPLATE as ADMISSION
from tidemark.model.admission_settings import AdmissionSettings
from tidemark.model.errors import ConfigurationError
from tidemark.model.timegrid import to_us

# Names become folder names, partition values and SQL identifiers, so only plain ones are allowed.
NAME_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"


def is_name(text: str) -> bool:
    """Whether the whole text is a plain name: a line break at its end, which `$` overlooks, is refused."""
    return re.fullmatch(NAME_PATTERN, text) is not None


TEMPLATE = f"""\
# Settings of this Tidemark home. Every line shows its default; remove the '#' to change one.

# shards = 1                                    # coordinators with a log of their own; fixed once data is in
# earliest_event_ts = 2024-12-30T00:00:00Z      # older events are refused as too_old
# clock_skew_ms = 300_000                       # events further ahead of the clock are refused as from_the_future
# clock_leap_ms = 60_000                        # writes are refused while the clock is wrong by more than this
# disorder_ms = 5_000                           # how far out of order a producer may send
# idle_timeout_ms = 30_000                      # a producer silent for longer holds no watermark back
# watermark_events = 100                        # a producer's watermark moves after this many events of its own
# watermark_ms = 1_000                          # and after this much time, when silence is noticed too
# segment_bytes = 67_108_864                    # a log file of this size is sealed into a segment
# segment_age_ms = 60_000                       # and so is one of this age
# quiet_segment_age_ms = 600_000                # or of this age, if there is little in it
# quiet_segment_bytes = 65_536                  # which is less than this
# recent_identities = 1_000_000                 # how many delta identities a shard remembers exactly

# [bounds]                                      # what may be in a shard's memory, and what is left on its disk
# deltas = 100_000                              # deltas that wait for the disk; then producers wait
# bytes = 52_428_800                            # and bytes
# high_water = 0.8                              # from here on batches close early
# emergency = 0.95                              # and from here on nothing is taken
# disk_keep_free_bytes = 268_435_456            # nothing is taken while less is free on the disk of the log

{ADMISSION}
# [batch]                                       # what subscribers and sinks get at a time
# min_ms = 10                                   # the time limit follows the rate of writes, and is never shorter
# max_ms = 5_000                                # nor longer than this
# target_writes = 100                           # how many writes a batch gathers at any rate in between
# bytes = 16_777_216                            # a batch of this size is closed at once
# count = 100_000                               # and so is one with this many deltas
# rate_change = 4.0                             # and one during which the rate of writes rose or fell by this factor
# queue_batches = 64                            # what may wait for one subscriber; then it is told what it missed
# queue_bytes = 16_777_216                      # the same in bytes
# held_bytes = 25_165_824                       # what may wait for all subscribers together

# [counts]                                      # what is computed from the rollups
# half_lives = ["1h", "1d", "7d"]               # of the decayed scores in windowed_counts; a number and m, h or d

# [compaction]                                  # of the history of vectors
# strategy = "tiered_merge"                     # or full_merge, time_boundary, adaptive
# threshold = 100                               # a vector is due with this many deltas after its last checkpoint
# max_age_ms = 60_000                           # or when the first of them has waited this long
# hard_limit = 1_000                            # with this many it is forced, whatever else
# keep_recent = 10                              # so many stay single with tiered_merge
# interval_ms = 3_600_000                       # one state for each interval with time_boundary
# horizon_ms = 604_800_000                      # what a vector was can be asked at least this far back
# busy_writes_per_hour = 60.0                   # adaptive: from here on a vector is written much
# rare_reads_per_hour = 1.0                     # adaptive: below this it is hardly read
# reads_per_write = 10.0                        # adaptive: so many reads pay for a merge after every write

# [namespaces.shop]
# dimension = 384                               # length of this namespace's vectors; without it none is enforced

# [spark]
# master = "local[*]"                           # any Spark master
# driver_memory = "3g"

# [warm_host]                                   # keeps everything imported, and a Spark, for commands and runs
# enabled = true                                # without it each of them takes some ten seconds longer
# idle_minutes = 15.0                           # it ends after so long without work

# [serve]                                       # the network door: ./tidemark serve
# listen = "127.0.0.1:7433"                     # the wire protocol; "" to listen nowhere
# http_listen = "127.0.0.1:7480"                # HTTP and the live page; "" to listen nowhere
# tls_cert = ""                                 # PEM file: the server's certificate, then those that signed it
# tls_key = ""                                  # PEM file: the key of that certificate
# tls_client_ca = ""                            # PEM file: who signs certificates of clients; then each needs one
# require_token = false                         # true: a token is needed on this machine, too (behind a proxy, say)
# allow_plain = false                           # true: tokens and deltas may cross the network unencrypted
# connections = 2_000                           # from outside of this process that have said who they are
# connections_per_token = 500                   # of them with the same token or name of a certificate
# unauthenticated_connections = 64              # those that have not said yet who they are
# window_bytes = 4_194_304                      # what one connection may have sent before it is acknowledged
"""

# A host or an address and a port; an IPv6 address in brackets.
_ADDRESS = r"^((\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):[0-9]{1,5})?\Z"


class Namespace(Struct, frozen=True, forbid_unknown_fields=True):
    """The declaration of one namespace."""

    dimension: Annotated[int, Meta(ge=1, le=65_536)] | None = None


class BatchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When flushed deltas are closed into a batch, and how much of it may wait for subscribers (C5, C9, C12)."""

    # Below this a delivery costs more than its contents.
    min_ms: Annotated[int, Meta(ge=1, le=60_000)] = 10
    # Above this delivery is no longer "live": the first delta of a quiet stream waits this long.
    max_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 5_000
    # A hundred writes share the fixed cost of a delivery; one second's wait at 100 writes a second, 10 ms at 10,000.
    target_writes: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    # As much as one group commit takes at most, so that a batch is never more than twice this.
    bytes: Annotated[int, Meta(ge=4_096, le=1024**3)] = 16 * 1024 * 1024
    # As many as the ingest queue holds; small deltas reach it about when they reach 16 MB.
    count: Annotated[int, Meta(ge=1)] = 100_000
    # Bursts cause smaller values by chance; the other triggers catch larger ones first.
    rate_change: Annotated[float, Meta(gt=1.0, le=1_000.0)] = 4.0
    # More than half a second of the fastest batches: a pause of a garbage collector, not a subscriber that is gone.
    queue_batches: Annotated[int, Meta(ge=1)] = 64
    # One batch of the largest kind, besides the one that the subscriber works on.
    queue_bytes: Annotated[int, Meta(ge=4_096)] = 16 * 1024 * 1024
    # Less than half of a shard's memory: whatever subscribers do, the rest is left to writes (C9).
    held_bytes: Annotated[int, Meta(ge=4_096)] = 24 * 1024 * 1024


class BoundSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What a shard may hold before producers have to wait (C8)."""

    # A tenth of a second of the fastest traffic: enough for the disk to catch its breath, little to lose in a crash.
    # Bounded so that every write that is taken fits into one frame of the log (C14).
    deltas: Annotated[int, Meta(ge=1, le=1_000_000)] = 100_000
    # Three groups of the largest kind: one being flushed, one gathering, one in line.
    bytes: Annotated[int, Meta(ge=4_096, le=1024**3)] = 50 * 1024 * 1024
    # Early enough that deltas waiting for a batch are delivered before any write is given back.
    high_water: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.8
    # The rest is for writes that are under way already.
    emergency: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.95
    # A log file, its segment and as much again: everything that was taken can be sealed and drained.
    disk_keep_free_bytes: Annotated[int, Meta(ge=0)] = 256 * 1024 * 1024


class CountSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Computations on the rollups besides the five trailing windows (R4)."""

    # Interest of the hour, of the day, of the week. A half-life of n days keeps hours from being dropped for 32 n days.
    half_lives: Annotated[tuple[Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,3}[mhd]\Z")], ...], Meta(max_length=16)] = (
        "1h",
        "1d",
        "7d",
    )


class CompactionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When the history of a vector is compacted, how, and how far back it can be read (K1 to K3)."""

    # The latest deltas are read most, and late deltas sort between them.
    strategy: Literal["full_merge", "tiered_merge", "time_boundary", "adaptive"] = "tiered_merge"
    # Folding a hundred deltas takes a millisecond, less than finding them.
    threshold: Annotated[int, Meta(ge=1)] = 100
    # A minute, as for a segment: older deltas get no more neighbours.
    max_age_ms: Annotated[int, Meta(ge=0)] = 60_000
    # Bounds the cost of one read.
    hard_limit: Annotated[int, Meta(ge=1)] = 1_000
    keep_recent: Annotated[int, Meta(ge=0)] = 10
    # As long as a partition of the tables.
    interval_ms: Annotated[int, Meta(ge=1)] = 3_600_000
    # A week to notice a mistake. The log refuses older changes once payloads were removed.
    horizon_ms: Annotated[int, Meta(ge=0)] = 604_800_000
    # At one a minute, the next delta follows any merge at once.
    busy_writes_per_hour: Annotated[float, Meta(ge=0.0)] = 60.0
    # Hardly ever read, measured by the interval.
    rare_reads_per_hour: Annotated[float, Meta(ge=0.0)] = 1.0
    reads_per_write: Annotated[float, Meta(ge=0.0)] = 10.0


class SparkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the batch plane gets its session."""

    # All cores of this machine: the batch plane is not latency-bound, and the live plane needs little.
    master: str = "local[*]"
    # A week's backfill of the demo's size fits many times; the default of 1 GB does not fit a large drain.
    driver_memory: str = "3g"
    # Anything else, as Spark names it.
    conf: dict[str, str] = {}


class WarmHostSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The process that keeps everything imported, and a Spark beside it, for commands and the daemon's runs."""

    # It changes nothing but how long things take.
    enabled: bool = True
    # A pause in somebody's work; its Spark holds memory that others may want.
    idle_minutes: Annotated[float, Meta(gt=0.0, le=10_080.0)] = 15.0


class ServeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The network door: where it listens, who may come in, and how many (W6, W10)."""

    # Loopback: whoever is on this machine. The door refuses more than that without TLS (`gateway/access/tls.py`).
    listen: Annotated[str, Meta(pattern=_ADDRESS)] = "127.0.0.1:7433"
    http_listen: Annotated[str, Meta(pattern=_ADDRESS)] = "127.0.0.1:7480"
    # No certificate can be made up that clients would trust, so there is none until there are these files.
    tls_cert: str = ""
    tls_key: str = ""
    # Tokens are enough for most; certificates of clients are for companies that have a CA of their own.
    tls_client_ca: str = ""
    # On a machine of one's own a token protects nothing that the file system does not. Behind a proxy everybody seems
    # to come from this machine: there it must be on.
    require_token: bool = False
    # Whoever listens on the way would have the tokens.
    allow_plain: bool = False
    # Twice what the door is measured with; each costs some 100 KB.
    connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 2_000
    # One program gone wild cannot take the places of all others.
    connections_per_token: Annotated[int, Meta(ge=1, le=1_000_000)] = 500
    # A hello takes milliseconds, so that few wait at any time; those that never say one cost no more than this.
    unauthenticated_connections: Annotated[int, Meta(ge=1, le=100_000)] = 64
    # Twenty group commits of 5 ms at 40 MB a second; more would only wait longer in memory.
    window_bytes: Annotated[int, Meta(ge=65_536, le=1024**3)] = 4 * 1024 * 1024


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a platform; each default is the one a careful operator would keep."""

    # One shard takes a million deltas a second; more are for more machines. The map of slots depends on this number.
    shards: Annotated[int, Meta(ge=1, le=1024)] = 1
    # A Monday, so that the first week is whole. Every hour since, and those before it that windows of the first events
    # begin in, is a partition of the orchestrator.
    earliest_event_ts: datetime = datetime(2024, 12, 30, tzinfo=UTC)
    # Five minutes is more than the error of any clock under NTP, and less than a late hour.
    clock_skew_ms: Annotated[int, Meta(ge=0)] = 300_000
    # More than NTP ever steps a correct clock, and less than an error of an hour or a day (C15).
    clock_leap_ms: Annotated[int, Meta(ge=1_000)] = 60_000
    # Most producers flush within seconds; older deltas are late, not lost.
    disorder_ms: Annotated[int, Meta(ge=0)] = 5_000
    # Long enough for a short pause, short enough that a stopped producer does not stop the others.
    idle_timeout_ms: Annotated[int, Meta(ge=1)] = 30_000
    # Few enough that a busy stream's watermark follows it closely, many enough that single writes cost nothing.
    watermark_events: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    # A fifth of the disorder, so that waiting for the next step makes windows hardly later; one message a step at most.
    watermark_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 1_000
    # Large enough for Parquet to be efficient, small enough to recover in a second.
    segment_bytes: Annotated[int, Meta(ge=4_096)] = 64 * 1024 * 1024
    # The lake is at most a minute behind a busy shard.
    segment_age_ms: Annotated[int, Meta(ge=1)] = 60_000
    # A trickle would make a small segment and a drain of every minute; ten are soon enough for it.
    quiet_segment_age_ms: Annotated[int, Meta(ge=1)] = 600_000
    quiet_segment_bytes: Annotated[int, Meta(ge=0)] = 64 * 1024
    # About a second of the fastest traffic, hours of normal traffic; the drain finds duplicates beyond it.
    recent_identities: Annotated[int, Meta(ge=0)] = 1_000_000
    batch: BatchSettings = BatchSettings()
    bounds: BoundSettings = BoundSettings()
    admission: AdmissionSettings = AdmissionSettings()
    counts: CountSettings = CountSettings()
    compaction: CompactionSettings = CompactionSettings()
    namespaces: dict[str, Namespace] = {}
    spark: SparkSettings = SparkSettings()
    warm_host: WarmHostSettings = WarmHostSettings()
    serve: ServeSettings = ServeSettings()

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
    if settings.batch.min_ms > settings.batch.max_ms:
        raise ConfigurationError(
            f"{path}: [batch] min_ms is {settings.batch.min_ms}, above max_ms, which is {settings.batch.max_ms}. "
            "Lower the one or raise the other."
        )
    if len(set(settings.counts.half_lives)) < len(settings.counts.half_lives):
        raise ConfigurationError(f"{path}: [counts] half_lives names one twice. Name each once.")
    compaction = settings.compaction
    if max(compaction.threshold, compaction.keep_recent + 1) > compaction.hard_limit:
        raise ConfigurationError(
            f"{path}: [compaction] hard_limit is {compaction.hard_limit}, which is below threshold "
            f"({compaction.threshold}) or not above keep_recent ({compaction.keep_recent}). Raise it, or lower those."
        )
    _check_serve(path, settings.serve)
    if (problem := settings.admission.problem()) is not None:
        raise ConfigurationError(f"{path}: {problem}")
    for name in (*settings.namespaces, *(stream.partition("/")[0] for stream in settings.admission.streams)):
        if not is_name(name):
            raise ConfigurationError(
                f"{path}: the namespace {name!r} is not a plain name. "
                "Use a lower-case letter, then up to 62 of a-z, 0-9 and _."
            )
    return settings


def _check_serve(path: Path, serve: ServeSettings) -> None:
    if bool(serve.tls_cert) != bool(serve.tls_key):
        given, missing = ("tls_cert", "tls_key") if serve.tls_cert else ("tls_key", "tls_cert")
        raise ConfigurationError(f"{path}: [serve] names {given} and no {missing}. TLS needs both files: name both.")
    if serve.tls_client_ca and not serve.tls_cert:
        raise ConfigurationError(
            f"{path}: [serve] tls_client_ca asks clients for certificates, which needs TLS. Name tls_cert and tls_key."
        )
