"""The processes that a warm host has forked: starting one, passing signals on, and hearing how it ended.

Belongs here: what the host knows of each. Does not belong here: which requests there are (`host.py`), and what the new
process does (`child.py`).
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from orchestration.warm_host.child import Surroundings, become
from orchestration.warm_host.place import send

# One that has to end is asked; later it is killed. A run in the middle of a commit needs some of this.
GRACE_S = 20.0
# Until the new process has put its own handling in place, a signal waits.
HELD_BACK = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass
class Forked:
    """One process."""

    pid: int
    own: Surroundings
    client: socket.socket | None = None  # who hears how it ended; if it goes, the process has to
    run: tuple[str, str] | None = None  # of the daemon: its id, and where its storage is
    is_brief: bool = False  # it ends soon, and nobody else would do its work
    kill_at_s: float | None = None

    def signal(self, number: int) -> None:
        """It cannot be another process: nobody has heard of its end yet, so its number is still its own."""
        os.kill(self.pid, number)

    def end(self, number: int) -> None:
        """Ask it to end, unless it will soon; it is killed after a while."""
        if self.kill_at_s is None:
            if not self.is_brief:
                self.signal(number)
                self.signal(signal.SIGCONT)  # one that is stopped would not hear it
            self.kill_at_s = time.monotonic() + GRACE_S

    def leave(self) -> None:
        """Its client has gone: nobody waits for what it does."""
        self._close()
        self.end(signal.SIGTERM)

    def tell(self, ended: Mapping[str, Any]) -> None:
        """Tell the client how it ended."""
        if self.client is not None:
            with suppress(OSError):  # it may not have waited
                send(self.client, dict(ended))
            self._close()

    def _close(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None


class Processes:
    """All of them, by number."""

    def __init__(self) -> None:
        self._all: dict[int, Forked] = {}
        self._host = os.getpid()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Forked]:
        return iter(list(self._all.values()))

    def clients(self) -> dict[int, Forked]:
        """Those with a client that may say something, by the number of the connection."""
        return {each.client.fileno(): each for each in self if each.client is not None}

    def fork(
        self,
        work: Callable[[], int],
        files: Iterable[int],
        own: Surroundings,
        close: Callable[[], None],
        run: tuple[str, str] | None = None,
    ) -> Forked:
        """A new process that does some work; `close` closes in it what is the host's alone."""
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        try:
            pid = os.fork()
            if not pid:
                become(work, tuple(files), own, self._host, partial(self._close, close))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
        self._all[pid] = Forked(pid, own, run=run)
        return self._all[pid]

    def _close(self, others: Callable[[], None]) -> None:
        """In a new process: what tells somebody whether the host lives, or another process of it."""
        others()
        for each in self:
            if each.client is not None:
                each.client.close()

    def reap(self) -> Iterator[tuple[Forked, dict[str, int]]]:
        """Those that have ended since the last look, and how."""
        for each in self:
            pid, status = os.waitpid(each.pid, os.WNOHANG)
            if pid:
                del self._all[pid]
                code = os.waitstatus_to_exitcode(status)
                yield each, {"signal": -code} if code < 0 else {"exit": code}

    def kill_late(self) -> None:
        """Kill those that had to end and did not."""
        for each in self:
            if each.kill_at_s is not None and time.monotonic() >= each.kill_at_s:
                each.signal(signal.SIGKILL)
