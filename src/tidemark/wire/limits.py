"""How large anything from outside may be, checked before memory is taken for it (W3).

Belongs here: the numbers. The server states them in its answer to a hello, so that a client can stay within them.
"""

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Bounds of one frame and of what it unpacks to."""

    # A few writes of the largest usual kind; a frame is in memory as a whole.
    payload_bytes: int = 16 * 1024 * 1024
    # Less than what a shard may hold, and what Arrow may take for a payload.
    unpacked_bytes: int = 32 * 1024 * 1024
    # Text of repeated names reaches forty or so; what is beyond is made to be large.
    ratio: int = 100
    # As many as may wait for the disk.
    rows: int = 100_000
    # The deepest delta that could be accepted has a depth of four.
    nesting: int = 32
    # A hello or a subscription: names, a token, a few topics.
    message_bytes: int = 64 * 1024


LIMITS = Limits()
