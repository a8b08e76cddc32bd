"""Control messages: what the log has to remember besides writes.

Belongs here: the messages and their bytes. Each is a fact that recovery needs and that no delta carries.
"""

from typing import cast

import msgspec
from msgspec import Struct


class Lost(Struct, frozen=True, tag="lost"):
    """Epochs `from_epoch` (in) to `to_epoch` (not in) were given out before a crash and never written (C7)."""

    from_epoch: int
    to_epoch: int


class ProducerOpened(Struct, frozen=True, tag="producer_opened"):
    """A new instance of a producer has taken over; older ones are fenced out (Q2)."""

    producer: str
    instance: int


Control = Lost | ProducerOpened

_decoder = msgspec.json.Decoder(Control)


def encode_control(message: Control) -> bytes:
    """The message as a frame's payload."""
    return msgspec.json.encode(message)


def decode_control(payload: memoryview) -> Control:
    """The message in a frame's payload."""
    return cast(Control, _decoder.decode(payload))
