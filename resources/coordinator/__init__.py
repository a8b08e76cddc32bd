"""The coordinator: admits deltas, puts them in order, numbers each write, makes it safe and seals it into segments.

Needs neither dagster nor pyspark. The way of a write through the modules:

    platform   splits by shard           decode      from objects and JSON to columns   log, frames  bytes on the disk
    shard      numbers, groups, waits    checks      what is wrong by itself            seal         log to segment
    producers  retries and fencing       identities  what was seen before               manifest     what is sealed
    arrival    decides on a group        watermarks  how far event time has come        recovery     from disk to shard
"""

from typing import TYPE_CHECKING, Any

from resources.coordinator.model import Delta, Kind, Level, Operation, Reason, Sample, Signal, Vector, Verdict

if TYPE_CHECKING:
    from resources.coordinator.platform import Platform, PlatformReceipt, Producer, system_clock

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
