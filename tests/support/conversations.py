"""Conversations with a door: deltas as JSON lines, and connections to it.

Belongs here: what several tests of the door say to it.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.served import ServedHome
from tidemark.client.connection import Connection
from tidemark.client.errors import NackedError
from tidemark.client.in_flight import Written
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.messages import Hello, Nack, Role

NOW_US = 1_800_000_000_000_000
# How long a conversation may last. A planted bug may make one hang, and then it should not hang for long.
PATIENCE = "TIDEMARK_TEST_PATIENCE_S"
_STARTED = time.monotonic()


def clock() -> int:
    """A clock that begins then, and goes: batches are closed by time."""
    return NOW_US + int((time.monotonic() - _STARTED) * 1_000_000)


def line(number: int, entity: str = "item-1", **changes: Any) -> bytes:
    """One delta."""
    delta = {
        "namespace": "shop",
        "kind": "signal",
        "delta_id": f"d-{number}",
        "event_ts": NOW_US,
        "signal": {"entity_id": entity, "signal": "view"},
    }
    return json.dumps(delta | changes).encode()


def lines(*numbers: int, entity: str = "item-1") -> bytes:
    """Several."""
    return b"\n".join(line(number, entity) for number in numbers)


def talk(what: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have a conversation, and let it not last for ever."""
    asyncio.run(asyncio.wait_for(what(), float(os.environ.get(PATIENCE, "60"))))


async def connected(door: ServedHome, producer: str = "web", **hello: Any) -> Connection:
    """A producer's connection."""
    return await Connection.open(door.url, Hello(producer=producer, **hello))


async def subscriber(door: ServedHome, **hello: Any) -> Connection:
    """A subscriber's connection."""
    return await Connection.open(door.url, Hello(role=Role.SUBSCRIBER, **hello))


def send(connection: Connection, sequence: int, payload: bytes, **options: Any) -> "asyncio.Future[Written]":
    """Send JSON lines under a number."""
    rows = payload.count(b"\n") + 1
    return connection.write(sequence, FrameType.DELTA, payload, rows=rows, flags=Flag.BATCHED, **options)


async def refused(future: "asyncio.Future[Written]") -> Nack:
    """What is said of a write that is not taken."""
    with pytest.raises(NackedError) as error:
        await future
    return error.value.nack
