"""What the log says of deltas that were turned away before they were numbered (A3).

Belongs here: the counts that no line of the manifest has yet, and whether a door was counting when the log ended. They
follow from the messages alone, so a replay finds the same.
"""

from msgspec import Struct
from msgspec.structs import replace

from tidemark.log.control import TurnedAway
from tidemark.model.turned_away import Tally


class Books(Struct, frozen=True):
    """As of some message of the log."""

    tally: Tally = Tally()  # noted since the last segment was sealed
    after_segment: int = 0  # the number of that segment: once there is another, it has these counts
    # A door is counting, and has told everything up to here; None if none is. A home that never had a door has None.
    counted_to_us: int | None = None

    def noted(self, message: TurnedAway) -> "Books":
        """After one more message."""
        return Books(self.tally.plus(message.tally), self.after_segment, None if message.is_last else message.to_us)

    def carried_over(self, *, is_sealed: bool) -> "Books":
        """After the end of a log file. The segment that it becomes has its counts; without writes it becomes none."""
        return replace(self, tally=Tally()) if is_sealed else self
