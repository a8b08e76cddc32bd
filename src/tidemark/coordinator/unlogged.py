"""What doors have turned away and the log has not been told yet (A3).

Belongs here: gathering it, so that many small notes become one message, which rides in the next frame or has one of its
own when it has waited for a minute.
"""

from tidemark.log.control import TurnedAway
from tidemark.model.timegrid import MINUTE_US


class Unlogged:
    """Notes that wait for a frame."""

    def __init__(self) -> None:
        self._message: TurnedAway | None = None
        self.due_us: int | None = None  # when it must be logged at the latest

    def add(self, message: TurnedAway, now_us: int) -> None:
        """Take a note in."""
        if self._message is None:
            self._message, self.due_us = message, now_us + MINUTE_US
        else:
            self._message = self._message.then(message)

    def take(self) -> TurnedAway | None:
        """Everything that waits."""
        message, self._message, self.due_us = self._message, None, None
        return message
