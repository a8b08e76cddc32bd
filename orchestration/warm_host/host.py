"""The warm host itself: takes requests, forks a process for each, and tells how it ended.

Belongs here: the loop, and when the host ends: after a while without work, when it is told to, or when the code or the
settings that it was started from have changed. It has one thread, and opens no channel, database or table, because it
forks. Does not belong here: the processes (`forked.py`), and what they do (`child.py`).
"""

import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from orchestration.warm_host import child
from orchestration.warm_host.client import idle_s
from orchestration.warm_host.forked import Forked, Processes
from orchestration.warm_host.place import STREAMS, BrokenMessageError, Place, is_gone, receive, send, user_of
from orchestration.warm_host.prepare import import_everything
from orchestration.warm_host.spark import SparkChild
from orchestration.warm_host.stamp import stamp_of
from tidemark.storage.home import Home

# Whoever looks whether there is a host holds the lock for a moment.
LOCK_TRIES, LOCK_PAUSE_S = 20, 0.05
# A request is sent at once; whoever does not is no client of ours.
REQUEST_S = 5.0
# A look at the clock: signals and requests are noticed at once.
LOOK_S = 2.0
# A client that cannot be taken waits at the door, and would be heard again at once.
CROWDED_S = 0.5
HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


class Host:
    """One host, from when it has the lock until it ends."""

    def __init__(self, home: Home, lock: int, spark: SparkChild, prepare: Callable[[], None]) -> None:
        self._place, self._stamp, self._idle_s = Place.of(home), stamp_of(home), idle_s(home)
        self._spark, self._since_us = spark, time.time_ns() // 1_000
        self._lock, self._listener = lock, self._place.listen()
        self._is_open, self._is_ending, self._has_news = True, False, False
        self._prepare, self._processes = prepare, Processes()
        self._users: list[socket.socket] = []  # of Spark, in processes of their own
        self._owners: list[socket.socket] = []  # of the daemon's runs
        self._leaving: list[socket.socket] = []  # who waits until these have ended
        self._waiting: list[socket.socket] = []  # for the end
        self._busy_s = time.monotonic()
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in HANDLED:
            signal.signal(number, self._hear)

    def run(self) -> None:
        """Until there is nothing left to do."""
        try:
            self._look_at_spark()
            # Everything, before the first request is taken: Spark takes longer to start.
            self._prepare()
            while not self._is_over():
                if self._is_open and not self._is_in_place():
                    self._close_door()
                self._look_at_spark()
                self._take_requests()
                self._reap()
                if self._is_ending:
                    self._close_door()
                    for each in self._processes:
                        each.end(signal.SIGTERM)
                self._processes.kill_late()
        finally:
            self._close_door()
            self._spark.stop()

    def _hear(self, number: int, _: object) -> None:
        self._is_ending = self._is_ending or number != signal.SIGCHLD

    def _is_over(self) -> bool:
        if len(self._processes) or self._users or (self._owners and self._is_open):
            self._busy_s = time.monotonic()
            return False
        return not self._is_open or time.monotonic() - self._busy_s >= self._idle_s

    def _close_door(self) -> None:
        """Take no more requests: from now on another host may be started. What is under way goes on."""
        if not self._is_open:
            return
        self._is_open = False
        with suppress(OSError):  # whoever comes next replaces both
            if self._is_in_place():
                self._place.state.unlink(missing_ok=True)
                self._place.door.unlink(missing_ok=True)
        self._listener.close()
        os.close(self._lock)
        for owner in self._owners:
            owner.close()  # it looks for the next host; the runs go on here
        self._owners.clear()

    def _is_in_place(self) -> bool:
        """Whether the lock is still where it was: a home may be deleted or moved, and another one has its path then."""
        try:
            return os.path.samestat(os.fstat(self._lock), self._place.lock.stat())
        except OSError:
            return False

    def _close_in_child(self) -> None:
        """Only the host may hold these: each of them tells somebody whether it lives."""
        if self._is_open:
            os.close(self._lock)
        for each in (
            self._listener,
            self._wake,
            self._waker,
            *self._users,
            *self._owners,
            *self._leaving,
            *self._waiting,
        ):
            each.close()

    def _look_at_spark(self) -> None:
        """See to it that there is one, and say so. A machine that is full now may have room at the next look."""
        try:
            self._has_news = self._spark.look() or self._has_news
            if self._has_news and self._is_open:
                self._write_state()
                self._has_news = False
        except OSError:
            _write_error()

    def _write_state(self) -> None:
        state = {
            "pid": os.getpid(),
            "since_us": self._since_us,
            "idle_s": self._idle_s,
            "spark_pid": self._spark.pid,
            "spark_address": next(iter(self._spark.address.values())),
        }
        fresh = self._place.state.with_suffix(".new")
        fresh.write_text(json.dumps(state))
        fresh.replace(self._place.state)

    def _take_requests(self) -> None:
        """What was asked or said since the last look; waits for that, but not for long."""
        clients, poll = self._processes.clients(), select.poll()
        others = {each.fileno(): each for each in (self._wake, *self._users, *self._owners)}
        if self._is_open:
            others[self._listener.fileno()] = self._listener
        for number in (*clients, *others):
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(LOOK_S * 1_000):
            if number in clients:
                self._hear_client(clients[number])
            elif others[number] is self._wake:
                self._wake.recv(4_096)
            elif others[number] is self._listener:
                self._accept()
            else:
                self._part_from(others[number])

    def _hear_client(self, process: Forked) -> None:
        """Signals that the client got, or its end."""
        assert process.client is not None  # noqa: S101 - it was asked because it has one
        try:
            said = process.client.recv(64)
            for number in said:
                process.signal(number)
        except OSError:
            said = b""
        if not said:
            process.leave()

    def _part_from(self, connection: socket.socket) -> None:
        """Somebody needs the host no more. Runs of the daemon end with what started the daemon."""
        if connection in self._owners:
            self._owners.remove(connection)
            self._leaving.append(connection)
            for each in self._processes:
                if each.run:
                    each.end(signal.SIGINT)
            self._let_go()
        else:
            self._users.remove(connection)
            connection.close()

    def _let_go(self) -> None:
        """Whoever ended the daemon's runs waits until they have ended."""
        if self._leaving and not any(each.run for each in self._processes):
            for connection in self._leaving:
                connection.close()
            self._leaving.clear()

    def _accept(self) -> None:
        try:
            connection = self._listener.accept()[0]
        except OSError:  # too many files are open
            _write_error()
            time.sleep(CROWDED_S)
        else:
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        """One request. A wrong one is answered by closing the connection."""
        connection.settimeout(REQUEST_S)
        files: list[int] = []
        try:
            if user_of(connection) != os.geteuid():
                raise BrokenMessageError("It comes from another user.")
            message, files = receive(connection)
            self._serve(connection, message, files)
        except (OSError, KeyError, TypeError, ValueError):
            _write_error()
            connection.close()
        finally:
            for file in files:
                os.close(file)

    def _serve(self, connection: socket.socket, message: dict[str, Any], files: list[int]) -> None:
        kind = message["kind"]
        if kind == "stop":
            self._waiting.append(connection)
            self._is_ending = True
        elif message["stamp"] != self._stamp:
            self._close_door()
            send(connection, {"taken": False})
            connection.close()
        elif kind == "lease":
            send(connection, {"taken": True, "environment": self._spark.address})
            (self._owners if message["owns_runs"] else self._users).append(connection)
        elif kind == "run":
            run = (str(message["run_id"]), str(message["storage"]))
            self._fork(connection, message, files, partial(child.execute_run, *run), run)
        else:
            self._fork(connection, message, files, partial(child.run_command, message["arguments"]))

    def _fork(
        self,
        connection: socket.socket,
        message: dict[str, Any],
        files: list[int],
        work: "partial[int]",
        run: tuple[str, str] | None = None,
    ) -> None:
        connection.setblocking(False)
        if is_gone(connection):
            raise BrokenMessageError("Whoever asked has gone, and may have it done in another way.")
        if len(files) != len(STREAMS):
            raise BrokenMessageError(f"{len(files)} of {len(STREAMS)} open files came.")
        own = child.Surroundings.of(message, self._spark.address)

        def close() -> None:
            connection.close()
            self._close_in_child()

        process = self._processes.fork(work, files, own, close, run)
        try:
            send(connection, {"taken": True, "process": process.pid})
        except OSError:
            # It has gone at this moment. Nobody waits for a command any more; a run has nobody who does.
            connection.close()
            if run is None:
                process.end(signal.SIGTERM)
            return
        if run is None:
            process.client = connection
        else:
            connection.close()

    def _reap(self) -> None:
        for process, ended in self._processes.reap():
            process.tell(ended)
            if process.run and ended != {"exit": 0}:
                how = f"was ended by signal {ended['signal']}" if "signal" in ended else f"ended with {ended['exit']}"
                work = partial(child.report_death, *process.run, how)
                try:
                    # Only what the run was told may say how its storage is opened.
                    self._processes.fork(work, (), process.own, self._close_in_child).is_brief = True
                except OSError:  # too many processes; the daemon asks after its runs by itself, but later
                    _write_error()
        self._let_go()


def _write_error() -> None:
    """Into the log, for which a full disk has no room either."""
    with suppress(OSError):
        traceback.print_exc()


def serve(home: Home, *, spark: SparkChild | None = None, prepare: Callable[[], None] = import_everything) -> None:
    """The host of a home, unless there is one; until it ends."""
    os.umask(0o077)
    place = Place.of(home)
    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
        else:
            break
    else:
        sys.exit(0)  # another one was first
    Host(home, lock, spark or SparkChild(home), prepare).run()
