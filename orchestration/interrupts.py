"""Ctrl-C and SIGTERM while this process makes runs: the run under way is recorded as failed, and it is the last one.

Belongs here: noticing the signal and how the process ends. Dagster takes both signals while it runs something: it ends
the step under way, records the run, and returns as if it had merely failed; one that comes between two steps may be
forgotten. So every signal is noted here, too, and asked for after each run. Does not belong here: what the tables hold
when a process ends in the middle; that is as after a crash, and the next run goes on from there.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from tidemark.cli.output import say_error
from tidemark.model.errors import StoppedError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Who sends SIGTERM kills after ten seconds as a rule, and a call to the JVM may take as long as it likes.
GRACE_S = 8.0
# No signal has this number: what came before it in the pipe has been read when it has.
MARK = 0
MARK_S = 1.0


@dataclass
class _Watch:
    """What has been received while `stoppable` is entered."""

    notes: socket.socket  # the system writes here
    signals: list[int] = field(default_factory=list)
    has_read: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)


_watches: list[_Watch] = []


def raise_if_stopped() -> None:
    """Raise if a signal has come, whoever handled it: call this before anything new is begun."""
    if not _watches:
        return
    watch = _watches[-1]
    # The thread that listens may not have had its turn since the signal came.
    watch.has_read.clear()
    watch.notes.send(bytes([MARK]))
    watch.has_read.wait(MARK_S)
    if watch.signals:
        raise StoppedError(watch.signals[0])


@contextmanager
def stoppable(grace_s: float = GRACE_S) -> Iterator[None]:
    """End what is inside on Ctrl-C or SIGTERM, within the grace; a second signal ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, notes = socket.socketpair()
    watch = _Watch(notes)
    notes.setblocking(False)
    # The system writes here whichever handler is in force.
    before_fd = signal.set_wakeup_fd(notes.fileno(), warn_on_full_buffer=False)
    before: dict[signal.Signals, Any] = {each: signal.signal(each, _raise) for each in SIGNALS}
    threading.Thread(target=_listen, args=(ours, watch, grace_s), daemon=True).start()
    logging.getLogger().addFilter(_is_news)
    _watches.append(watch)
    try:
        yield
        raise_if_stopped()
    finally:
        watch.is_over.set()
        _watches.remove(watch)
        logging.getLogger().removeFilter(_is_news)
        for each, handler in before.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(before_fd)
        notes.close()


def _is_news(record: logging.LogRecord) -> bool:
    """Libraries log the traceback of whatever ends a call of theirs; of an interrupt there is nothing to say."""
    ended_by = record.exc_info[1] if record.exc_info else None
    return ended_by is None or isinstance(ended_by, Exception)


def _raise(number: int, _: FrameType | None) -> None:
    raise StoppedError(number)


def _listen(ours: socket.socket, watch: _Watch, grace_s: float) -> None:
    """In a thread of its own: the main thread may be in a call that no signal interrupts."""
    with ours:
        while received := ours.recv(64):
            stops = [number for number in received if number in SIGNALS]
            is_first = not watch.signals
            watch.signals += stops
            if stops and is_first:
                threading.Thread(target=_end, args=(watch, grace_s), daemon=True).start()
            elif stops:
                _end(watch, 0.0)
            if MARK in received:
                watch.has_read.set()


def _end(watch: _Watch, grace_s: float) -> None:
    """End the process if it has not ended by itself; as after a crash, the next run finds and finishes the rest."""
    if not watch.is_over.wait(grace_s):
        stopped = StoppedError(watch.signals[0])
        say_error(str(stopped))
        os._exit(stopped.exit_code)
