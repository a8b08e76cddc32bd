"""Questions to the tables and the log: the same answers as those of the command line (`tidemark/answers`).

Belongs here: the parameters of each question, who may ask it, and where it is answered: on a few threads, beside the
loop that takes writes, and not for longer than a while.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tidemark.gateway.access.tokens import ALL, AccessError, Grant
from tidemark.gateway.http.access import refused
from tidemark.gateway.http.errors import RETRY_AFTER_MS, HttpError
from tidemark.model.errors import DamageError, TidemarkError
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from tidemark.counts.lake import LakeCounts

# Questions read files and compute: as many as there are cores for beside the writes.
THREADS = 2
MOST_WAITING = 32
ANSWER_S = 30.0
MOST_ENTITIES = 10_000
MOST_NEIGHBOURS = 10_000
MOST_WINDOWS = 10_000

Name = Annotated[str, Meta(min_length=1, max_length=256)]


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a question."""


class CountsQuery(Question, frozen=True, forbid_unknown_fields=True):
    """How often something happened to an entity, over five windows."""

    entity: Annotated[str, Meta(min_length=1)]
    namespace: Name
    signal: Name | None = None  # without it: every signal that the entity has
    as_of: str | None = None  # the end of every window, on a minute


class TopQuery(Question, frozen=True, forbid_unknown_fields=True):
    """The entities with the highest counts of a signal."""

    namespace: Name
    signal: Name
    window: str = "24h"
    n: Annotated[int, Meta(ge=1, le=MOST_ENTITIES)] = 10
    as_of: str | None = None


class WindowsQuery(Question, frozen=True, forbid_unknown_fields=True):
    """The latest windows of a stream."""

    stream: Name
    last: Annotated[int, Meta(ge=1, le=MOST_WINDOWS)] = 5
    key: tuple[str, ...] = ()  # VALUE, or FIELD=VALUE once for each field


class VectorQuery(Question, frozen=True, forbid_unknown_fields=True):
    """A vector's state now, at a time or after an epoch."""

    id: Annotated[str, Meta(min_length=1)]
    namespace: Name | None = None
    as_of: str | None = None
    epoch: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    chain: bool = False


class NearestQuery(Question, frozen=True, forbid_unknown_fields=True):
    """The vectors nearest to one of them, or to some numbers."""

    id: str | None = None
    values: str | None = None  # numbers with commas between them
    k: Annotated[int, Meta(ge=1, le=MOST_NEIGHBOURS)] = 10
    namespace: Name | None = None
    metric: str | None = None
    probes: str | None = None  # a number of lists, or `all`


class NoQuery(Question, frozen=True, forbid_unknown_fields=True):
    """Without parameters."""


class _Local(threading.local):
    lake: "LakeCounts | None" = None


class Answers:
    """The answers of one home. `ask` is for the loop; everything else runs on a thread."""

    def __init__(self, home: Home, *, threads: int = THREADS) -> None:
        self._home = home
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="answer")
        self._local = _Local()
        self.waiting = 0

    def close(self) -> None:
        """Take no more questions."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ask(self, answer: Callable[[Any, Grant], object], query: Question, grant: Grant) -> bytes:
        """The answer to a question, as JSON; raises `HttpError`."""
        if self.waiting >= MOST_WAITING:
            raise HttpError(
                503,
                "busy",
                f"{MOST_WAITING} questions are being answered or wait. Ask again in a second.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self.waiting += 1
        # A thread cannot be stopped: one whose caller has gone on counts until it is done.
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._answer, answer, query, grant)
        future.add_done_callback(self._done)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(future)
        except TimeoutError:
            raise HttpError(
                504, "timeout", f"There was no answer within {ANSWER_S:.0f} s. Ask for less, or on the command line."
            ) from None

    def _done(self, future: "asyncio.Future[bytes]") -> None:
        self.waiting -= 1
        if not future.cancelled():
            future.exception()  # its caller may have gone

    def _answer(self, answer: Callable[[Any, Grant], object], query: Question, grant: Grant) -> bytes:
        from tidemark.answers.plain import without_infinity

        try:
            return msgspec.json.encode(without_infinity(answer(query, grant)))
        except AccessError as error:
            raise refused(error) from error
        except (TidemarkError, OSError) as error:
            raise _trouble(error) from error

    # The questions.

    def counts(self, query: CountsQuery, _grant: Grant) -> object:
        """`GET /v1/counts`."""
        from tidemark.answers.counts import ask_counts, counts_as_json

        found = ask_counts(
            self._lake(), query.entity, namespace=query.namespace, signal=query.signal, as_of_us=_time(query.as_of)
        )
        return counts_as_json(found)

    def top(self, query: TopQuery, _grant: Grant) -> object:
        """`GET /v1/top`."""
        from tidemark.answers.top import ask_top, top_as_json
        from tidemark.counts.windows import Window

        found = ask_top(
            self._home,
            namespace=query.namespace,
            signal=query.signal,
            window=_one_of("window", Window, query.window),
            number=query.n,
            as_of_us=_time(query.as_of),
        )
        return top_as_json(found)

    def windows(self, query: WindowsQuery, grant: Grant) -> object:
        """`GET /v1/windows`."""
        from tidemark.answers.windows import parse_key, windows_as_json
        from tidemark.streams.latest import latest_windows

        found = latest_windows(self._home, query.stream, last=query.last, key=parse_key(query.key))
        grant.require_read(found.stream.namespace)
        return windows_as_json(found)

    def vector(self, query: VectorQuery, _grant: Grant) -> object:
        """`GET /v1/vector`."""
        from tidemark.answers.vector import ask_vector, vector_as_json
        from tidemark.vectors.reading.reader import Vectors

        with Vectors(self._home) as vectors:
            found = ask_vector(
                vectors,
                query.id,
                namespace=query.namespace,
                as_of_us=_time(query.as_of),
                epoch=query.epoch,
                is_chain=query.chain,
            )
            return vector_as_json(found)

    def nearest(self, query: NearestQuery, _grant: Grant) -> object:
        """`GET /v1/nearest`."""
        from tidemark.answers.nearest import ask_nearest, nearest_as_json, parse_probes, parse_values
        from tidemark.vectors.index.metrics import Metric

        if (query.id is None) == (query.values is None):
            raise HttpError(400, "bad_parameter", "Give an id, or numbers as values.")
        found = ask_nearest(
            self._home,
            vector_id=query.id,
            values=None if query.values is None else parse_values(query.values),
            k=query.k,
            namespace=query.namespace,
            metric=None if query.metric is None else _one_of("metric", Metric, query.metric),
            probes=None if query.probes is None else parse_probes(query.probes),
        )
        return nearest_as_json(found, query.id)

    def status(self, _: NoQuery, _grant: Grant) -> object:
        """`GET /v1/status`."""
        from tidemark.event_time.clock import system_clock
        from tidemark.observe.home_status import home_as_json, read_home

        return home_as_json(read_home(self._home, now_us=system_clock()))

    def account(self, _: NoQuery, _grant: Grant) -> object:
        """`GET /v1/account`."""
        from tidemark.answers.account import account_as_json
        from tidemark.observe.account import take_account

        return account_as_json(take_account(self._home))

    def watermarks(self, _: NoQuery, _grant: Grant) -> object:
        """`GET /v1/watermarks`."""
        from tidemark.event_time.clock import system_clock
        from tidemark.observe.home_status import watermarks_as_json
        from tidemark.observe.status import read_status
        from tidemark.observe.watermark_tree import read_watermark_tree

        shards, now_us = read_status(self._home), system_clock()
        return watermarks_as_json(shards, read_watermark_tree(self._home, shards, now_us=now_us), now_us=now_us)

    def _lake(self) -> "LakeCounts":
        # It is for one thread at a time, and opening its database takes longer than most questions.
        if self._local.lake is None:
            from tidemark.counts.lake import LakeCounts

            self._local.lake = LakeCounts(self._home)
        return self._local.lake


def require_read(grant: Grant, query: Question) -> None:
    """Raise if the answer would show a namespace that the caller may not read, or the platform as a whole."""
    if not isinstance(query, WindowsQuery):  # whose stream says of which namespace it is
        namespace = getattr(query, "namespace", None)
        grant.require_read(ALL if namespace is None else namespace)


def _time(text: str | None) -> int | None:
    from tidemark.answers.plain import parse_time

    return None if text is None else parse_time(text)


def _one_of(name: str, words: Any, word: str) -> Any:
    try:
        return words(word)
    except ValueError:
        known = ", ".join(str(each) for each in words)
        raise HttpError(400, "bad_parameter", f"{name}: {word!r} is none of {known}.") from None


def _trouble(error: Exception) -> HttpError:
    """What an answer's own error means here: nothing of that name, a bad question, or a home in trouble."""
    from tidemark.counts.lake import UnknownNamespaceError
    from tidemark.model.errors import ConfigurationError
    from tidemark.streams.latest import UnknownStreamError
    from tidemark.vectors.errors import UnknownVectorError
    from tidemark.vectors.reading.nearest import NoIndexError

    if isinstance(error, UnknownNamespaceError | UnknownVectorError | UnknownStreamError | NoIndexError):
        return HttpError(404, "unknown", str(error))
    if isinstance(error, DamageError | ConfigurationError | OSError):
        return HttpError(500, "home", str(error))
    return HttpError(400, "bad_parameter", str(error))
