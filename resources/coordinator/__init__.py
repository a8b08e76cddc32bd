"""The coordinator: admits deltas, puts them in order, numbers each write, makes it safe and seals it into segments.

Needs neither dagster nor pyspark. The way of a write through the modules:

    platform     splits by shard, watermarks over shards    shard, aio   what callers call: threads, coroutines
    core         a shard in steps, without threads          writer       the threads that take the steps
    clock        what time it is when a clock leaps
    engine       numbers, gathers, flushes, tells           queue        who comes next when there is more than room
    bounds       what may be in memory and on the disk      producers    retries, refusals and fencing
    flusher      from numbered writes to a synced frame     arrival      decides on a group, with what follows here:
    decode, decode_columns    objects and columns           checks       what is wrong by itself
    identities                what was seen before          watermarks   how far event time has come
    log, frames, groups       bytes on the disk             seal, segments, manifest    log to segment
    batching, delivery        what subscribers get          recovery     from disk to shard
    keyed                     another kind of write, on the same engine
"""

from typing import TYPE_CHECKING, Any

from resources.coordinator.model import Delta, Kind, Level, Operation, Reason, Sample, Signal, Vector, Verdict

if TYPE_CHECKING:
    from resources.coordinator.clock import system_clock
    from resources.coordinator.platform import Platform, PlatformReceipt, Producer

__all__ = [
    "Delta",
    "Kind",
    "Level",
    "Operation",
    "Platform",
    "PlatformReceipt",
    "Producer",
    "Reason",
    "Sample",
    "Signal",
    "Vector",
    "Verdict",
    "system_clock",
]


def __getattr__(name: str) -> Any:
    """What writes is imported when it is used: whoever only looks at a manifest needs neither Arrow nor numpy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from resources.coordinator import platform

    return getattr(platform, name)
