"""Errors between a producer and a shard: one family, each kind with the data that the caller needs to go on.

Belongs here: errors of the live plane. Errors of stored bytes derive from `DamageError` as well, so that one
`except` finds them all.
"""

from pathlib import Path

from tidemark.model.errors import DamageError, TidemarkError


class CoordinatorError(TidemarkError):
    """Any error of the coordinator."""


class SequenceGapError(CoordinatorError):
    """A producer skipped a number; `expected` is the one to send."""

    def __init__(self, producer: str, sent: int, expected: int) -> None:
        self.producer, self.sent, self.expected = producer, sent, expected
        super().__init__(
            f"Producer {producer!r} sent write {sent}, but {expected} is next. Send {expected} first: "
            "a gap means that a write was lost on the way."
        )


class NumberReuseError(CoordinatorError):
    """Another write was taken under this number before; `write` is the refused one."""

    def __init__(self, producer: str, sequence: int, write: object = None) -> None:
        self.producer, self.sequence, self.write = producer, sequence, write
        super().__init__(
            f"Producer {producer!r} has sent another write under number {sequence} before. That one was taken, and "
            "this one was not. Send what is new under a new number: a producer opened without `from_start` goes on "
            "behind its last."
        )


class NumberingError(CoordinatorError):
    """A producer cannot go on with numbers that meant something else before."""

    def __init__(self, producer: str, *, is_thin: bool) -> None:
        self.producer = producer
        before, now = "to every shard", "to each shard by itself"
        if not is_thin:
            before, now = now, before
        super().__init__(
            f"Producer {producer!r} has numbered its writes {before} until now, and would number them {now}. A number "
            "would then stand for two writes. Go on as before, or take another name."
        )


class ProducerFencedError(CoordinatorError):
    """A newer instance of the same producer has taken over; this one must stop."""

    def __init__(self, producer: str, instance: int, current: int) -> None:
        self.producer, self.instance, self.current = producer, instance, current
        super().__init__(
            f"Producer {producer!r} was opened again (instance {current}), so this instance {instance} may not write "
            "any more. Stop it, or give it a name of its own."
        )


class EpochNotAssignedError(CoordinatorError):
    """A caller waits for an epoch that no write has yet."""

    def __init__(self, epoch: int, applied: int) -> None:
        self.epoch, self.applied = epoch, applied
        super().__init__(f"Epoch {epoch} is not assigned yet: the last one is {applied}. Wait for a write's own epoch.")


class EpochLostError(CoordinatorError):
    """The epoch was assigned before a crash and never reached the disk; its write must be sent again."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        super().__init__(f"Epoch {epoch} was lost in a crash before it was flushed. Send its write again.")


class ShardFencedError(CoordinatorError):
    """Another process has taken the shard over; this one must stop writing."""

    def __init__(self, shard: int, incarnation: int) -> None:
        self.shard, self.incarnation = shard, incarnation
        super().__init__(
            f"Another process has taken over shard {shard}, so this one (incarnation {incarnation}) has stopped "
            "writing. Send to the other one; if it should not be there, stop it and start this one again."
        )


class FrameTooLargeError(CoordinatorError):
    """The encoded group could not be read back; nothing of it was written."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(f"A frame of {size:,} bytes cannot be logged, because only {limit:,} could be read again")


class OutcomeUnknownError(CoordinatorError):
    """A flush failed; a restart will show whether the write is in the log. `write` is the write as sent."""

    def __init__(self, epoch: int, cause: BaseException, write: object = None) -> None:
        self.epoch, self.cause, self.write = epoch, cause, write
        super().__init__(
            f"{_what_failed(cause)} while epoch {epoch} was being flushed ({cause}). Whether it is there is unknown "
            "until the shard has been started again: then send it again under the same sequence number."
        )


def how_to_go_on(failure: BaseException) -> str:
    """The error that stopped a shard, and what to do about it."""
    return str(failure) if isinstance(failure, ShardFencedError) else f"{failure}. Start it again to recover."


def _what_failed(cause: BaseException) -> str:
    if isinstance(cause, OSError):
        return "The disk failed"
    return "The shard was taken over" if isinstance(cause, ShardFencedError) else "The shard failed"


class ShardStoppedError(CoordinatorError):
    """The shard takes no more writes; `write` is given back, and nothing of it was written."""

    def __init__(self, shard: int, why: str, write: object = None) -> None:
        self.shard, self.write = shard, write
        super().__init__(f"Shard {shard} takes no writes: {why}")


class BackpressureError(CoordinatorError):
    """There is no room now. `write` is given back untouched, and its number stays free: send it again later."""

    passes_by_itself = True  # so a writer without a timeout waits; otherwise an operator must act first

    def __init__(self, why: str, retry_after_s: float, write: object = None) -> None:
        self.retry_after_s, self.write = retry_after_s, write
        super().__init__(f"{why} Nothing was taken. Send the same write again in {retry_after_s:g} s.")


class DiskSpaceError(BackpressureError):
    """The disk is nearly full; taken writes are being drained, and new ones are taken once there is room."""

    def __init__(self, free: int, wanted: int, retry_after_s: float, write: object = None) -> None:
        self.free, self.wanted = free, wanted
        super().__init__(
            f"Only {free:,} bytes are free on the disk of the log, and {wanted:,} are kept free.", retry_after_s, write
        )


class ClockLeapError(BackpressureError):
    """The clock is wrong, so nothing can be stamped; writes are taken again once it is right (C15)."""

    passes_by_itself = False


class ShardBusyError(CoordinatorError):
    """Another process holds the shard."""

    def __init__(self, shard: int, path: Path) -> None:
        self.shard = shard
        super().__init__(
            f"Shard {shard} is open in another process (lock {path}). One writer per shard: stop that one first."
        )


class EmptyWriteError(CoordinatorError):
    """A write without deltas has nothing to number."""

    def __init__(self) -> None:
        super().__init__("A write needs at least one delta.")


class WriteFormatError(CoordinatorError):
    """A whole write cannot be split into deltas; nothing of it was taken."""


class WriteTooLargeError(CoordinatorError):
    """A write could never fit; nothing of it was taken, and its number is used up (Q2): go on with the next."""

    def __init__(self, size: int, limit: int, unit: str = "bytes", write: object = None) -> None:
        self.size, self.limit, self.write = size, limit, write
        super().__init__(
            f"The write has {size:,} {unit}; {limit:,} fit into one. Send what is in it in several writes, under new "
            "numbers."
        )


class WriteRefusedError(CoordinatorError):
    """A write under this number was refused for good; sending it again changes nothing."""

    def __init__(self, producer: str, sequence: int, why: str) -> None:
        self.producer, self.sequence = producer, sequence
        super().__init__(f"Write {sequence} of producer {producer!r} was refused for good: {why}")


class WaitTimeoutError(CoordinatorError):
    """The level was not reached in time; the write goes on, and may be waited for again."""

    def __init__(self, epoch: int, level: str, seconds: float) -> None:
        self.epoch, self.level, self.seconds = epoch, level, seconds
        super().__init__(f"Epoch {epoch} did not become {level} within {seconds:g} s. It is not lost: wait again.")


class SubscriptionEndedError(CoordinatorError):
    """Nothing more will come: `cause` is the error that stopped the shard, or None if it was closed on purpose."""

    def __init__(self, cause: BaseException | None = None) -> None:
        self.cause = cause
        super().__init__(
            "The subscription was closed, and everything before that was delivered."
            if cause is None
            else f"The shard stopped ({cause}). Everything flushed before that is in the log: subscribe again when it "
            "has been started again, and read the snapshot."
        )


class LogDamageError(CoordinatorError, DamageError):
    """A log file is damaged at a place where no crash can have torn it."""


class ManifestDamageError(CoordinatorError, DamageError):
    """The manifest does not describe an unbroken row of segments."""


class SegmentDamageError(CoordinatorError, DamageError):
    """A segment differs from its entry in the manifest."""
