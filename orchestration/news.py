"""Waiting for news: a sensor that has nothing to do looks again when a file has changed, not when seconds have passed.

Belongs here: which files change with everything that a sensor could act on, and how long it may wait for that inside a
tick. A look costs queries, and a row in the orchestrator's storage; whether a file has changed costs microseconds. Does
not belong here: what is news for whom: a sensor looks at the state itself, and a change too many only costs a look.
"""

import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import dagster as dg

from orchestration.instance import EVENTS_FILE
from resources.dagster_internals import SqliteEventLogStorage
from tidemark.log.manifest import HEAD_FILE
from tidemark.storage.home import Home

# Dagster's own name for how long a tick may take.
LIMIT_VARIABLE = "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS"
# A file of `ui`: ticks wait while it is there. Without it none does, and a server of definitions could not end either.
WHILE_VARIABLE = "TIDEMARK_WAIT_WHILE"
# A tick that waited has this long for its last look.
RESERVE_S = 60.0
# Users wait for a segment to be drained: this is noticed so soon after it was sealed. Idle pages pay for each glance.
GLANCE_S = 0.5
# Hours begin, and failed runs may be tried again (`timetable.RETRY_AT`), without any file that changes: always at a
# tenth minute, and Dagster's clock has to be past it.
BY_CLOCK_S, PAST_S = 600.0, 1.0
# While a run works, something changes all the time.
LOOK_S = 1.0

# Whoever started this server of definitions. If it is killed, nobody is left to end the waiting.
_PARENT = os.getppid()

Answer = TypeVar("Answer")


def patience_s(instance: dg.DagsterInstance) -> float:
    """How long a tick may wait.

    Not at all where ticks wait for one another, as in the settings of an older home, and where no file says that a run
    has ended, as with PostgreSQL.
    """
    limit = os.environ.get(LIMIT_VARIABLE)
    if not limit or not may_wait() or not instance.get_sensor_settings().get("use_threads"):
        return 0.0
    if _events_file(instance) is None:
        return 0.0
    return max(0.0, float(limit) - RESERVE_S)


def may_wait() -> bool:
    """Whether whoever started this server of definitions still lets ticks wait."""
    path = os.environ.get(WHILE_VARIABLE)
    return bool(path) and Path(str(path)).exists() and os.getppid() == _PARENT


def look_until(
    look: Callable[[], Answer],
    is_news: Callable[[Answer], bool],
    files: Callable[[], Hashable],
    *,
    patience_s: float,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Look until there is something, again whenever a file has changed; the last answer when patience is over."""
    end_s = clock() + patience_s
    while True:
        before, looked_s = files(), clock()
        answer = look()
        if is_news(answer):
            return answer
        while files() == before or clock() - looked_s < LOOK_S:
            if clock() >= end_s or not may_wait():
                return answer
            pause(GLANCE_S)


class Evaluation:
    """An evaluation that is too dear to be repeated without need.

    If it found nothing, it waits until something has changed since. What follows from the clock alone is found when its
    patience is over.
    """

    def __init__(self) -> None:
        self._seen: Hashable = None

    def after_news(
        self,
        evaluate: Callable[[], Answer],
        is_news: Callable[[Answer], bool],
        files: Callable[[], Hashable],
        *,
        patience_s: float,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> Answer:
        """The answer, at once if it was none of these last time, or if something has changed."""
        end_s = clock() + min(patience_s, BY_CLOCK_S - now() % BY_CLOCK_S + PAST_S)
        while (before := files()) == self._seen and clock() < end_s and may_wait():
            pause(GLANCE_S)
        answer = evaluate()
        self._seen = None if is_news(answer) else before
        return answer


def files_of(home: Home, instance: dg.DagsterInstance) -> Callable[[], Hashable]:
    """The state of everything that sensors act on: sealed segments, commits to tables, events of the orchestrator."""
    events = _events_file(instance)
    fixed = [events, f"{events}-wal"] if events else []
    fixed += [str(home.segments(shard) / HEAD_FILE) for shard in range(home.settings.shards)]
    return lambda: state_of_files((*fixed, *_logs(home.lake)))


def state_of_files(paths: Iterable[str]) -> Hashable:
    """Changes whenever one of these files does."""
    return tuple(map(_state, paths))


def _events_file(instance: dg.DagsterInstance) -> str | None:
    """The file to which each event adds; None if the orchestrator keeps them elsewhere."""
    storage = instance.event_log_storage
    return storage.path_for_shard(EVENTS_FILE.stem) if isinstance(storage, SqliteEventLogStorage) else None


def _logs(lake: Path) -> Iterator[str]:
    """The folder of each table's log: it changes with every commit."""
    try:
        with os.scandir(lake) as tables:
            yield from sorted(f"{table.path}/_delta_log" for table in tables)
    except FileNotFoundError:
        return  # nothing was drained yet


def _state(path: str) -> tuple[str, int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - many times a second, and a Path costs as much as the question
    except OSError:
        return path, 0, 0
    # SQLite makes an empty log whenever somebody opens a database, and removes it when the last one closes it: a look
    # at the orchestrator's events would be news for all other sensors, and their looks for this one.
    return path, found.st_mtime_ns if found.st_size else 0, found.st_size
