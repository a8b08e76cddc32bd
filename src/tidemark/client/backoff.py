"""How long to wait before the next try.

Belongs here: exponential waiting with full jitter, so that clients that lost a server together do not return together.
"""

from random import Random

FIRST_S = 0.1
MOST_S = 20.0


class Backoff:
    """Waits that grow until something succeeds."""

    def __init__(self, random: Random, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._random, self._first_s, self._most_s = random, first_s, most_s
        self.failures = 0

    def success(self) -> None:
        """Begin anew."""
        self.failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The seconds until the next try. What the server asks for is waited for, and the jitter comes after it."""
        most = min(self._most_s, self._first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return at_least_s + self._random.uniform(0.0, most)
