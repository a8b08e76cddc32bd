"""What sends to a Tidemark over the network, and loses nothing. Needs neither Arrow nor Spark.

What programs use is exported here, and imported when it is first used. Everything else may change without notice.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.client.aio import AsyncClient, connect_async
    from tidemark.client.client import Client, Report, Stats, connect
    from tidemark.client.errors import (
        ClientError,
        ClientFullError,
        FencedError,
        NotYetError,
        RefusedError,
        ServerLostDataError,
    )
    from tidemark.client.handles import Outcome, Sent

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "ClientFullError",
    "FencedError",
    "NotYetError",
    "Outcome",
    "RefusedError",
    "Report",
    "Sent",
    "ServerLostDataError",
    "Stats",
    "connect",
    "connect_async",
]

_PLACES = {
    "tidemark.client.aio": ("AsyncClient", "connect_async"),
    "tidemark.client.client": ("Client", "Report", "Stats", "connect"),
    "tidemark.client.errors": (
        "ClientError",
        "ClientFullError",
        "FencedError",
        "NotYetError",
        "RefusedError",
        "ServerLostDataError",
    ),
    "tidemark.client.handles": ("Outcome", "Sent"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is exported when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
