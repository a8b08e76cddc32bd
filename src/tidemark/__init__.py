"""Tidemark: streams of small changes, made durable, ordered and exact.

What programs use is exported here, and imported when it is first used: a program that only builds deltas needs neither
Arrow nor NumPy. Everything else in this package may change without notice. Nothing in it imports Dagster, PySpark or
Great Expectations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.client.client import connect
    from tidemark.coordinator.aio import AsyncPlatform
    from tidemark.coordinator.platform import Platform, PlatformReceipt, Producer
    from tidemark.counts.lake import LakeCounts
    from tidemark.counts.warm.follower import Follower
    from tidemark.counts.windows import Window
    from tidemark.event_time.clock import system_clock
    from tidemark.model.deltas import Delta, Kind, Level, Reason, Sample, Signal, Vector, Verdict
    from tidemark.model.errors import TidemarkError
    from tidemark.model.operations import Operation
    from tidemark.storage.home import Home
    from tidemark.vectors.compose import apply_form
    from tidemark.vectors.index.metrics import Metric
    from tidemark.vectors.merged import merged_forms
    from tidemark.vectors.reading.nearest import open_index
    from tidemark.vectors.reading.reader import Vectors

__all__ = [
    "AsyncPlatform",
    "Delta",
    "Follower",
    "Home",
    "Kind",
    "LakeCounts",
    "Level",
    "Metric",
    "Operation",
    "Platform",
    "PlatformReceipt",
    "Producer",
    "Reason",
    "Sample",
    "Signal",
    "TidemarkError",
    "Vector",
    "Vectors",
    "Verdict",
    "Window",
    "apply_form",
    "connect",
    "merged_forms",
    "open_index",
    "system_clock",
]

# Where each of them is; a test holds it together with the imports above.
_PLACES = {
    "tidemark.client.client": ("connect",),
    "tidemark.coordinator.aio": ("AsyncPlatform",),
    "tidemark.coordinator.platform": ("Platform", "PlatformReceipt", "Producer"),
    "tidemark.counts.lake": ("LakeCounts",),
    "tidemark.counts.warm.follower": ("Follower",),
    "tidemark.counts.windows": ("Window",),
    "tidemark.event_time.clock": ("system_clock",),
    "tidemark.model.deltas": ("Delta", "Kind", "Level", "Reason", "Sample", "Signal", "Vector", "Verdict"),
    "tidemark.model.operations": ("Operation",),
    "tidemark.model.errors": ("TidemarkError",),
    "tidemark.storage.home": ("Home",),
    "tidemark.vectors.compose": ("apply_form",),
    "tidemark.vectors.index.metrics": ("Metric",),
    "tidemark.vectors.merged": ("merged_forms",),
    "tidemark.vectors.reading.nearest": ("open_index",),
    "tidemark.vectors.reading.reader": ("Vectors",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is exported when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
