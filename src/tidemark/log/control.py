"""Control messages: facts that the log stores besides writes.

Belongs here: the messages and their bytes. Each is a fact that recovery or a reader of the log needs and that no
delta carries.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from tidemark.log.batch_record import BatchRecord
from tidemark.model.event_time_rules import EventTimeRules
from tidemark.model.turned_away import Tally


class Lost(Struct, frozen=True, tag="lost"):
    """Epochs `from_epoch` (in) to `to_epoch` (not in) were given out before a crash and never written (C7)."""

    from_epoch: int
    to_epoch: int


class ProducerOpened(Struct, frozen=True, tag="producer_opened"):
    """A new instance of a producer has taken over; older ones are fenced out (Q2)."""

    producer: str
    instance: int
    # Each of its numbers goes to every shard, and not only to those that the write has deltas for (W5).
    is_thin: bool = False


class NumberUsed(Struct, frozen=True, tag="number_used"):
    """A write had no deltas for this shard; its number is used up here too, and the next one is expected (W5)."""

    producer: str
    sequence: int


class WriteRefused(Struct, frozen=True, tag="write_refused"):
    """A write was refused for good before it got an epoch; its number is used up, and the next one is expected (Q2)."""

    producer: str
    sequence: int
    why: str


class Cause(StrEnum):
    """Why a watermark is logged in a message of its own."""

    TIME = "time"  # a step came: the writes since the last one count, or the clock has caught up with them
    IDLE = "idle"  # the producer that kept it low went idle
    COUNT = "count"  # the last write completed a count, and no later write is stamped with it
    ADOPTED = "adopted"  # from the shards that are active in the stream


class WatermarkAdvanced(Struct, frozen=True, tag="watermark_advanced"):
    """A stream's watermark has risen to this value, and no write is stamped with it yet (T2)."""

    namespace: str
    kind: str
    watermark_us: int
    cause: Cause


class EarliestRaised(Struct, frozen=True, tag="earliest_raised"):
    """Older events are refused from this group on: the data they would change is about to go (D9, R5)."""

    earliest_us: int


class VectorsCut(Struct, frozen=True, tag="vectors_cut"):
    """Older changes to vectors are refused from the group with this message on: their payloads are about to go (K4).

    Before removing them, wait until all writes up to `behind_epoch` are in the lake: later ones have no older change.
    """

    cut_us: int
    behind_epoch: int  # the last write whose verdicts may not know the cut; 0 if there was none


class RulesInForce(Struct, frozen=True, tag="rules_in_force"):
    """From here on watermarks follow these rules (T2)."""

    rules: EventTimeRules


class ClockReset(Struct, frozen=True, tag="clock_reset"):
    """The log was written under a wrong clock. Nothing before this counts as later than `at_us` (C15)."""

    number: int  # 1, 2, 3, … within the home
    at_us: int


class BatchClosed(Struct, frozen=True, tag="batch_closed"):
    """A batch was delivered, and why it was closed then (C5)."""

    record: BatchRecord


class TurnedAway(Struct, frozen=True, tag="turned_away"):
    """What a door has turned away before it was numbered, from one time up to another (A3).

    The door goes on counting from there, unless this is its last word. A log that ends while a door counts does not
    say what was turned away after that.
    """

    tally: Tally
    from_us: int
    to_us: int
    is_last: bool = False

    def then(self, later: "TurnedAway") -> "TurnedAway":
        """This message and the one after it as one."""
        return TurnedAway(self.tally.plus(later.tally), self.from_us, max(self.to_us, later.to_us), later.is_last)


Control = (
    Lost
    | ProducerOpened
    | NumberUsed
    | WriteRefused
    | WatermarkAdvanced
    | RulesInForce
    | EarliestRaised
    | VectorsCut
    | ClockReset
    | BatchClosed
    | TurnedAway
)

_decoder = msgspec.json.Decoder(list[Control])


def encode_controls(messages: Sequence[Control]) -> bytes:
    """Messages as bytes of a frame."""
    return msgspec.json.encode(messages)


def decode_controls(data: memoryview) -> list[Control]:
    """Messages from a frame."""
    return _decoder.decode(data)
