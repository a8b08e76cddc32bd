"""Control messages: what the log has to remember besides writes.

Belongs here: the messages and their bytes. Each is a fact that recovery needs and that no delta carries.
"""

from enum import StrEnum
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


class Cause(StrEnum):
    """Why a watermark stands in a message of its own."""

    TIME = "time"  # a step came: what was sent since the last one counts, or the clock has caught up with it
    IDLE = "idle"  # whoever held it back has fallen silent
    COUNT = "count"  # the last write completed a count, and no later one has been stamped with it
    ADOPTED = "adopted"  # from the shards that are active in the stream


class WatermarkAdvanced(Struct, frozen=True, tag="watermark_advanced"):
    """A stream's watermark has come this far without a stamp on a write that says so (T2)."""

    namespace: str
    kind: str
    watermark_us: int
    cause: Cause


Control = Lost | ProducerOpened | WatermarkAdvanced

_decoder = msgspec.json.Decoder(Control)


def encode_control(message: Control) -> bytes:
    """The message as a frame's payload."""
    return msgspec.json.encode(message)


def decode_control(payload: memoryview) -> Control:
    """The message in a frame's payload."""
    return cast(Control, _decoder.decode(payload))
