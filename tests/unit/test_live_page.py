"""The live page: what is looked at, for whom, and that the page needs nothing from elsewhere."""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidemark import Level, Platform
from tidemark.gateway.access.tokens import AccessError, TokenStore
from tidemark.gateway.http.access import Access
from tidemark.gateway.http.counters import Counters
from tidemark.gateway.http.live import LiveFeed
from tidemark.gateway.http.live_view import LiveView, Looker
from tidemark.gateway.http.watching import PAGE, Watching
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import SECOND_US
from tidemark.storage.home import Home

NOW_US = 1_772_445_600_000_000
DELTA = {
    "namespace": "shop",
    "kind": "signal",
    "delta_id": "d1",
    "event_ts": "2026-03-02T10:00:00Z",
    "signal": {"entity_id": "a", "signal": "view"},
}


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 30))


class Looks(Looker):
    """Looks at nothing, and counts how often."""

    def __init__(self) -> None:
        self.made = 0
        self.curve = deque([(1, 2.0)])
        self.failure: Exception | None = None

    def look(self) -> LiveView:
        self.made += 1
        if self.failure is not None:
            raise self.failure
        return LiveView(at_us=self.made, home="home")


class Seconds:
    """Passes when it is told to."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def sleep(self, _: float) -> None:
        waits = asyncio.get_running_loop().create_future()
        self._waiting.append(waits)
        await waits

    async def tick(self) -> None:
        while not self._waiting:
            await asyncio.sleep(0.001)
        self._waiting.pop().set_result(None)


async def next_of(events: AsyncIterator[bytes]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await anext(events))
    return found


def test_one_look_is_for_all_who_watch_and_none_is_made_for_nobody() -> None:
    async def steps() -> None:
        looks, seconds = Looks(), Seconds()
        feed = LiveFeed(looks, sleep=seconds.sleep)
        assert not feed.is_watched
        async with aclosing(feed.events()) as first, aclosing(feed.events()) as second:
            assert [(await next_of(each))["at_us"] for each in (first, second)] == [1, 1]
            await seconds.tick()
            assert [(await next_of(each))["at_us"] for each in (first, second)] == [2, 2]
            assert looks.made == 2
        assert not feed.is_watched
        async with aclosing(feed.events()) as again:
            assert (await next_of(again))["at_us"] == 3
        await asyncio.sleep(0.01)
        assert looks.made == 3

    run(steps())


def test_whoever_comes_gets_the_latest_look_and_the_curve_at_once() -> None:
    async def steps() -> None:
        seconds = Seconds()
        feed = LiveFeed(Looks(), sleep=seconds.sleep)
        async with aclosing(feed.events()) as first, aclosing(feed.events()) as late:
            assert (await next_of(first))["curve"] == [[1, 2.0]]
            assert (await next_of(late)) == {**(await next_after(seconds, first)), "at_us": 1, "curve": [[1, 2.0]]}
            assert (await next_of(late))["curve"] == [], "the page has it by then"

    async def next_after(seconds: Seconds, events: AsyncIterator[bytes]) -> dict[str, Any]:
        await seconds.tick()
        return await next_of(events)

    run(steps())


def test_whoever_reads_slowly_gets_the_latest_and_nothing_gathers() -> None:
    async def steps() -> None:
        seconds = Seconds()
        feed = LiveFeed(Looks(), sleep=seconds.sleep)
        async with aclosing(feed.events()) as quick, aclosing(feed.events()) as slow:
            await next_of(quick)
            await next_of(slow)
            for _ in range(5):
                await seconds.tick()
                await next_of(quick)
            assert (await next_of(slow))["at_us"] == 6

    run(steps())


def test_a_look_that_fails_ends_all_feeds_and_the_next_one_begins_anew() -> None:
    async def steps() -> None:
        looks, seconds = Looks(), Seconds()
        feed = LiveFeed(looks, sleep=seconds.sleep)
        async with aclosing(feed.events()) as events:
            await next_of(events)
            looks.failure = RuntimeError("a mistake in the program")
            await seconds.tick()
            with pytest.raises(StopAsyncIteration):
                await anext(events)
        looks.failure = None
        async with aclosing(feed.events()) as events:
            assert (await next_of(events))["at_us"] == 3

    run(steps())


def test_somebody_may_come_as_the_last_one_goes() -> None:
    async def steps() -> None:
        feed = LiveFeed(Looks(), sleep=Seconds().sleep)
        leaving = feed.events()
        await next_of(leaving)
        await leaving.aclose()
        async with aclosing(feed.events()) as coming:
            assert (await next_of(coming))["at_us"] == 2
            assert feed.is_watched

    run(steps())


class Server:
    """What a serving process says, as a test wants it."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"accepted": 0, "duplicate": 0, "refused": 0, "turned_away": 0}
        self.by_reason: dict[str, dict[str, int]] = {}
        self.shards: list[dict[str, Any]] = []
        self.failure: Exception | None = None

    def __call__(self, _: Home) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        counts = {"connections": 3, "producers": 2, "subscribers": 1}
        said = {"counts": self.counts, "by_reason": self.by_reason, "watermarks": {"shop/signal": NOW_US}}
        return {"shards": self.shards, **counts, **said}


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now_us = NOW_US

    def __call__(self) -> int:
        return self.now_us


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create("")


def live(flushed: int) -> dict[str, Any]:
    """A running shard, as it shows itself."""
    return {
        "shard": 0,
        "pid": 1,
        "at_us": NOW_US,
        "state": "idle",
        "applied_epoch": flushed + 1,
        "flushed_epoch": flushed,
        "queued_writes": 0,
        "bytes": {"queued": 0},
        "is_disk_low": False,
        "last_flush_us": NOW_US,
        "last_batch_trigger": "time",
        "last_batch_us": NOW_US,
        "batch_limit_ms": 10.0,
    }


def test_the_rate_is_what_was_decided_since_the_last_look(home: Home) -> None:
    clock, server = Clock(), Server()
    looker = Looker(home, clock=clock, ask_status=server)
    assert looker.look().per_second is None
    server.counts |= {"accepted": 150, "refused": 40, "turned_away": 10}
    server.by_reason = {"refused": {"malformed": 40}, "turned_away": {"rate": 10}}
    clock.now_us += 2 * SECOND_US
    view = looker.look()
    assert view.per_second == 100.0
    assert view.by_reason == {"refused": {"malformed": 40}, "turned_away": {"rate": 10}}
    assert view.outcomes["turned_away"] == 10
    assert list(looker.curve) == [(clock.now_us, 100.0)]


def test_there_is_no_rate_after_a_restart_or_a_pause(home: Home) -> None:
    clock, server = Clock(), Server()
    looker = Looker(home, clock=clock, ask_status=server)
    server.counts["accepted"] = 100
    looker.look()
    server.counts["accepted"] = 5
    clock.now_us += SECOND_US
    assert looker.look().per_second is None, "counts begin at zero again"
    clock.now_us += 60 * SECOND_US
    assert looker.look().per_second is None, "nobody watched, and the mean of a minute is no rate"
    clock.now_us += SECOND_US
    assert looker.look().per_second == 0.0
    assert len(looker.curve) == 1


def test_a_server_that_does_not_answer_is_told_and_the_rest_is_shown(home: Home) -> None:
    server = Server()
    server.failure = TidemarkError("The process does not answer.")
    view = Looker(home, ask_status=server).look()
    assert view.troubles == ("The process does not answer.",)
    assert view.home == str(home.root)
    server.failure = None
    assert Looker(home, ask_status=server).look().troubles == ()
    view = Looker(home).look()
    assert len(view.troubles) == 1, "none serves this home"


def test_what_waits_for_the_next_drain_is_counted(home: Home) -> None:
    with Platform.open(home) as platform:
        platform.producer("one").write([DELTA, {**DELTA, "delta_id": "d2"}]).wait(Level.FLUSHED)
    view = Looker(home, ask_status=Server()).look()
    assert (view.waiting.segments, view.waiting.rows, view.tables) == (1, 2, ())
    assert view.troubles == ()


def test_a_damaged_manifest_is_told_and_the_rest_is_shown(home: Home) -> None:
    with Platform.open(home) as platform:
        platform.producer("one").write([DELTA]).wait(Level.FLUSHED)
    for path in home.segments(0).glob("manifest*"):
        path.write_bytes(b"{}\n")
    clock, server = Clock(), Server()
    looker = Looker(home, clock=clock, ask_status=server)
    assert len(looker.look().troubles) == 1
    clock.now_us += SECOND_US
    view = looker.look()
    assert len(view.troubles) == 1, "also when the tables are not read again"
    assert view.connections == 3
    assert view.per_second == 0.0, "the server answers"


def test_a_durable_subscriber_is_behind_by_the_epochs_it_has_not_acknowledged(home: Home) -> None:
    folder = home.door / "subscribers"
    folder.mkdir(parents=True)
    (folder / "features.json").write_text('{"cursor": {"0": 40}}')
    (folder / "damaged.json").write_text("{")
    server = Server()
    server.shards = [live(50)]
    view = Looker(home, ask_status=server).look()
    assert [(each.name, each.behind) for each in view.durable_names] == [("features", 10)]
    [shard] = view.shards
    assert (shard.applied, shard.flushed, shard.durable) == (51, 50, 0)


class Door:
    """As much of the HTTP door as the page needs."""

    def __init__(self, home: Home) -> None:
        self.home, self.access, self.counters = home, Access(TokenStore(home)), Counters()


class Request:
    """One request to a route, and what was sent for it."""

    def __init__(self, *, client: str = "127.0.0.1", token: str | None = None) -> None:
        headers = [(b"host", b"localhost:7480")]
        headers += [(b"authorization", b"Bearer " + token.encode())] if token else []
        self.scope = {"type": "http", "method": "GET", "path": "/v1/live", "headers": headers, "client": (client, 1)}
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    async def events(self, count: int) -> list[LiveView]:
        while len(self.sent) < count + 1:
            await asyncio.sleep(0.01)
        return [msgspec.json.decode(each["body"].removeprefix(b"data: "), type=LiveView) for each in self.sent[1:]]


def routes(home: Home) -> dict[str, Callable[..., Coroutine[Any, Any, int]]]:
    return Watching(Door(home)).handlers()  # type: ignore[arg-type,return-value]


def test_the_feed_follows_until_the_reader_goes(home: Home) -> None:
    async def steps() -> None:
        request = Request()
        answering = asyncio.create_task(routes(home)["/v1/live"](request.scope, request.receive, request.send))
        [view, *_] = await request.events(1)
        assert view.home == str(home.root)
        assert (b"content-type", b"text/event-stream") in request.sent[0]["headers"]
        request.gone.set()
        assert await answering == 200

    run(steps())


def test_the_page_is_for_anybody_and_its_feed_for_those_who_may_read_everything(home: Home) -> None:
    async def steps() -> None:
        page, feed = (routes(home)[path] for path in ("/", "/v1/live"))
        secret, _ = TokenStore(home).create("shop", ["read:shop"])
        stranger, known = Request(client="10.0.0.1"), Request(client="10.0.0.1", token=secret)
        assert await page(stranger.scope, stranger.receive, stranger.send) == 200
        assert stranger.sent[-1]["body"] == PAGE.read_bytes()
        with pytest.raises(Exception, match="A token is needed"):
            await feed(stranger.scope, stranger.receive, stranger.send)
        with pytest.raises(AccessError, match="may not read all namespaces"):
            await feed(known.scope, known.receive, known.send)

    run(steps())


def test_the_feed_ends_when_its_token_is_revoked(home: Home) -> None:
    async def steps() -> None:
        store = TokenStore(home)
        secret, _ = store.create("dashboard", ["read:*"])
        request = Request(client="10.0.0.1", token=secret)
        answering = asyncio.create_task(routes(home)["/v1/live"](request.scope, request.receive, request.send))
        await request.events(1)
        store.revoke("dashboard")
        assert await answering == 200
        assert request.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    run(steps())


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = PAGE.read_text()
    assert "default-src 'none'" in text
    links = re.findall(r"""(?:src|href|action)\s*=\s*["']([^"']*)|url\(([^)]*)\)|@import\s+(\S+)""", text)
    assert [link for groups in links for link in groups if link and not link.startswith("data:")] == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)\S+", text) == []
    assert re.findall(r"fetch\('([^']+)'", text) == ["/v1/live"]


def test_nothing_from_the_server_is_read_as_html() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", PAGE.read_text())


def test_the_page_reads_fields_that_there_are() -> None:
    read = set(re.findall(r"\bview\.(\w+)", PAGE.read_text()))
    fields = set(LiveView.__struct_fields__)
    assert read <= fields
    assert fields - read == set(), "what nobody shows is not sent"
