"""The pause before something that has died is started again.

Belongs here: how long it is. Does not belong here: what is started.
"""

import time

PAUSE_S = 10.0
# Somebody may have mended meanwhile what it died of.
LONGEST_S = 300.0
# What has lasted so long did not die of its start.
LASTED_S = 300.0


class Pause:
    """Between two starts of the same thing: it doubles each time up to a limit, until one has lasted."""

    def __init__(self) -> None:
        self._asked_s, self._due_s, self._pause_s = 0.0, 0.0, PAUSE_S

    def is_over(self) -> bool:
        """Whether it may be started now; if so, the next pause begins. Asked every few seconds while it is dead."""
        now_s = time.monotonic()
        # Nobody has asked while it lived: the question before this one was at its start.
        if now_s - self._asked_s >= LASTED_S:
            self._pause_s = PAUSE_S
        self._asked_s = now_s
        if now_s < self._due_s:
            return False
        self._due_s, self._pause_s = now_s + self._pause_s, min(2 * self._pause_s, LONGEST_S)
        return True
