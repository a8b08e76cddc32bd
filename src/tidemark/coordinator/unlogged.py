"""What doors have turned away and the log has not been told yet (A3).

Belongs here: gathering it, so that many small notes become one message, which rides in the next frame or has one of its
own when it has waited for a minute; and the message about a time in which nobody could count.
"""

from collections.abc import Callable

from tidemark.coordinator.flusher import LogBuffer
from tidemark.log.control import TurnedAway
from tidemark.model.timegrid import MINUTE_US
from tidemark.model.turned_away import Tally
from tidemark.shard_state.books import Books


class Unlogged:
    """Notes that wait for a frame."""

    def __init__(self, found: Books, clock: Callable[[], int]) -> None:
        """`found` is as the log had it when this process started."""
        self._message: TurnedAway | None = None
        self.due_us: int | None = None  # when it must be logged at the latest
        if (since_us := found.counted_to_us) is not None:
            # A door was counting, and its process ended before it could tell the rest.
            now_us = max(clock(), since_us)
            self.add(TurnedAway(Tally(unknown=[(since_us, now_us)]), since_us, now_us, is_last=True), now_us)

    def add(self, message: TurnedAway, now_us: int, *, is_urgent: bool = False) -> None:
        """Take a note in."""
        self._message = message if self._message is None else self._message.then(message)
        if is_urgent or self.due_us is None:
            self.due_us = now_us if is_urgent else now_us + MINUTE_US

    def move_to(self, buffer: LogBuffer) -> None:
        """Put everything that waits into the next frame."""
        if self._message is not None:
            buffer.note(self._message, is_urgent=False)
        self._message = self.due_us = None
