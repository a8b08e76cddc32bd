"""What a subscriber gets: deliveries, and the iterator over them (W7).

Belongs here: reading a delivery. The connection sends and receives the frames.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.frames import FrameType
from tidemark.wire.messages import DeliveryHead, decode

if TYPE_CHECKING:
    import pyarrow as pa

HEAD_KEY = b"tidemark"


class Delivery(NamedTuple):
    """Deltas that were delivered together; `number` counts the connection's deliveries."""

    number: int
    kind: FrameType
    payload: bytes

    @property
    def head(self) -> DeliveryHead:
        """What it says of itself: how far the subscriber is when it has this one."""
        if self.kind == FrameType.DELTA:
            return decode(self.payload.partition(b"\n")[0], DeliveryHead)
        head = (self.table().schema.metadata or {}).get(HEAD_KEY)
        if head is None:
            raise PayloadError(NackReason.BAD_PAYLOAD, "The schema of a delivery says nothing of where it ends.")
        return decode(head, DeliveryHead)

    def lines(self) -> list[bytes]:
        """The deltas of a delivery in JSON."""
        return [line for line in self.payload.split(b"\n")[1:] if line]

    def table(self) -> "pa.Table":
        """The deltas of a delivery in Arrow."""
        import pyarrow as pa

        with pa.ipc.open_stream(pa.py_buffer(self.payload)) as stream:
            return stream.read_all()


class Deliveries:
    """Deliveries that have arrived and were not read yet. The server keeps to `max_unacked`, or the connection ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._arrived: asyncio.Queue[Delivery | BaseException] = asyncio.Queue()
        self._last = 0
        self._acknowledged = 0

    def arrive(self, delivery: Delivery) -> None:
        """A delivery has come."""
        if delivery.number != self._last + 1:
            raise PayloadError(NackReason.BAD_PAYLOAD, f"delivery {delivery.number} came after delivery {self._last}")
        if delivery.number - self._acknowledged > self._most:
            raise PayloadError(
                NackReason.BAD_PAYLOAD, f"more than {self._most} deliveries came without an acknowledgement"
            )
        self._last = delivery.number
        self._arrived.put_nowait(delivery)

    def acknowledge(self, number: int) -> None:
        """The subscriber has dealt with everything up to this delivery."""
        if number > self._last:
            raise ValueError(f"delivery {number} has not come yet: the last one is {self._last}")
        self._acknowledged = max(self._acknowledged, number)

    def fail(self, error: BaseException) -> None:
        """Nothing more will come."""
        self._arrived.put_nowait(error)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        while True:
            found = await self._arrived.get()
            if isinstance(found, BaseException):
                raise found
            yield found
