"""Epochs: assigned one by one, and reserved ahead so that none is ever assigned twice (C7).

Belongs here: the counter and its reservation. Its owner decides where a reservation is stored.
"""

from collections.abc import Callable

# Reserved with one sync. Those that a crash leaves unused are logged as lost, which costs nothing but numbers. The
# write that uses up the last one waits for the disk and cuts its group in two, so this must be rare at 20,000 a second.
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
        """The next number. It is reserved durably before it is returned."""
        if self.last + 1 >= self._reserved_to:
            reserved_to = self.last + 1 + self._ahead
            self._reserve(reserved_to)
            self._reserved_to = reserved_to
        self.last += 1
        return self.last
