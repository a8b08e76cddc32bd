"""Epochs: given out one by one, reserved ahead so that none is ever given out twice (C7).

Belongs here: the counter and its reservation. Where a reservation is kept is the owner's business.
"""

from collections.abc import Callable

# Set aside with one sync. What a crash leaves of them is logged as lost, which costs nothing but numbers. Whoever comes
# to the end of them waits for the disk and cuts the group that gathers in two, so this must be rare at 20,000 a second.
RESERVED_AHEAD = 10_000


class Epochs:
    """The numbers of one coordinator's writes, from 1 on."""

    def __init__(
        self,
        next_epoch: int = 1,
        reserve: Callable[[int], object] = lambda _: None,
        ahead: int = RESERVED_AHEAD,
    ) -> None:
        self.last = next_epoch - 1
        self._reserved_to = next_epoch
        self._reserve, self._ahead = reserve, ahead

    def take(self) -> int:
        """The next number. It is reserved, durably, before anybody sees it."""
        if self.last + 1 >= self._reserved_to:
            reserved_to = self.last + 1 + self._ahead
            self._reserve(reserved_to)
            self._reserved_to = reserved_to
        self.last += 1
        return self.last
