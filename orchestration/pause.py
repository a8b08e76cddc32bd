"""The pause before something that has died is started again.

Belongs here: how long it is. Does not belong here: what is started.
"""

import time

PAUSE_S = 10.0
# What has lasted so long did not die of its start.
LASTED_S = 300.0


class Pause:
    """Between two starts of the same thing: it doubles each time, until one has lasted."""

    def __init__(self) -> None:
        self._due_s, self._pause_s = 0.0, PAUSE_S

    def is_over(self) -> bool:
        """Whether it may be started now; if so, the next pause begins."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        if now_s - self._due_s > LASTED_S:
            self._pause_s = PAUSE_S
        self._due_s, self._pause_s = now_s + self._pause_s, 2 * self._pause_s
        return True
