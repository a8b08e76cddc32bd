"""What the HTTP door sends for long: server-sent events (W7), the page's feed, and frames in a WebSocket (W1)."""

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.http_served import HttpServed, error_of, http_served, view
from tidemark.gateway.access.tokens import TokenStore
from tidemark.gateway.http import event_stream, subscribing
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import Flag, Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.messages import Ack, Heartbeat, Hello, Nack, Welcome, decode, encode


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with http_served(tmp_path_factory.mktemp("streams") / "home") as found:
        yield found


Event = dict[str, str]


def events(answer: httpx.Response) -> Iterator[Event]:
    """Events as a browser reads them; comments are under an empty name."""
    event: Event = {}
    for line in answer.iter_lines():
        if not line:
            yield event
            event = {}
        else:
            name, _, value = line.partition(":")
            event[name] = event.get(name, "") + value.removeprefix(" ")


def deltas_of(event: Event) -> list[str]:
    return [delta["delta_id"] for delta in msgspec.json.decode(event["data"])["deltas"]]


def follow(answer: httpx.Response, wanted: int) -> tuple[list[str], str]:
    """So many deltas, and the id of the last event."""
    found: list[str] = []
    for event in events(answer):
        if event.get("event") == "deltas":
            found += deltas_of(event)
            if len(found) >= wanted:
                return found, event["id"]
    raise AssertionError(f"it ended with {found}")


def test_whoever_was_cut_off_goes_on_behind_the_last_event(door: HttpServed) -> None:
    with door.client.stream("GET", "/v1/subscribe?topic=cutoff&cursor=0:0") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        door.post(view("e1", namespace="cutoff"), view("e0"))
        found, last = follow(answer, 1)
    assert found == ["e1"]
    door.post(view("e2", namespace="cutoff"))
    headers = {"last-event-id": last}
    # The header of the browser counts more than the URL that it asks again.
    with door.client.stream("GET", "/v1/subscribe?topic=cutoff&cursor=0:0", headers=headers) as answer:
        door.post(view("e3", namespace="cutoff"))
        assert follow(answer, 2)[0] == ["e2", "e3"]


def test_topics_choose_deltas_that_have_all_of_one_of_them(door: HttpServed) -> None:
    door.post(
        view("t1", namespace="topical"),
        view("t2", namespace="topical", signal={"entity_id": "a/b", "signal": "view"}),
        view("t3", namespace="topical", kind="sample", signal=None, sample={"labels": {"a": "b"}, "value": 1.0}),
    )
    for topics, wanted in (
        (["topical/signal/a/b"], ["t2"]),
        (["topical/sample"], ["t3"]),
        (["topical/signal/item-7", "topical/*/a/b"], ["t1", "t2"]),
        (["topical"], ["t1", "t2", "t3"]),
    ):
        params: list[tuple[str, str]] = [("topic", topic) for topic in topics]
        with door.client.stream("GET", "/v1/subscribe", params=[*params, ("cursor", "0:0")]) as answer:
            assert sorted(follow(answer, len(wanted))[0]) == wanted


def test_a_name_goes_on_where_it_stood(door: HttpServed) -> None:
    with door.client.stream("GET", "/v1/subscribe?topic=named&name=reader_a") as answer:
        stream = events(answer)
        next(stream)
        # It is known from the moment on at which the coordinator has written it down.
        while not (door.home.door / "subscribers" / "reader_a.json").exists():
            time.sleep(0.01)
        door.post(view("m1", namespace="named"))
        assert deltas_of(next(event for event in stream if "data" in event)) == ["m1"]
    door.post(view("m2", namespace="named"))
    with door.client.stream("GET", "/v1/subscribe?topic=named&name=reader_a") as answer:
        assert follow(answer, 1)[0][-1] == "m2"


@pytest.mark.parametrize(
    "query",
    ["cursor=17", "cursor=0:1,", "cursor=7:1", "name=Bad%20Name", "topic=shop/none", "what=1", "cursor=0:1&cursor=0:2"],
)
def test_a_subscription_that_cannot_be_is_400(door: HttpServed, query: str) -> None:
    answer = door.client.get(f"/v1/subscribe?{query}")
    assert (answer.status_code, error_of(answer)["reason"]) == (400, "bad_parameter")


def test_silence_is_filled_with_comments_and_a_revoked_token_ends_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribing, "HEARTBEAT_S", 0.05)
    with http_served(tmp_path / "home") as door:
        store = TokenStore(door.home)
        token, _ = store.create("brief", ["read:*"])
        with door.client.stream("GET", "/v1/subscribe", headers={"authorization": f"Bearer {token}"}) as answer:
            stream = events(answer)
            assert any("still here" in event.get("", "") for event in (next(stream) for _ in range(5)))
            store.revoke("brief")
            last = [event for event in stream if "data" in event]
    assert [event["event"] for event in last] == ["error"]
    assert msgspec.json.decode(last[0]["data"])["error"]["reason"] == "unauthenticated"


def test_the_end_of_the_coordinator_ends_a_subscription_with_a_word(tmp_path: Any) -> None:
    with http_served(tmp_path / "home") as door, door.client.stream("GET", "/v1/subscribe") as answer:
        stream = events(answer)
        next(stream)
        door.served.call(door.served.door.drain(1))
        assert [event.get("event") for event in stream] == ["error"]


def test_a_slow_reader_holds_up_itself_and_takes_no_memory(door: HttpServed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes nothing is behind by as much as two deliveries and a socket, and then it is let go."""
    monkeypatch.setattr(event_stream, "STALLED_S", 2.0)
    slow = socket.create_connection(("127.0.0.1", door.port), timeout=20)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    try:
        slow.sendall(b"GET /v1/subscribe?topic=heavy HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert slow.recv(1_024).startswith(b"HTTP/1.1 200")
        text = "x" * 20_000
        for number in range(20):
            ids = [f"h{number}-{each}" for each in range(40)]
            said = door.post(
                *[
                    view(each, namespace="heavy", signal={"entity_id": f"{text}{each}"[:200], "signal": "v"})
                    for each in ids
                ]
            )
            assert said.json()["accepted"] == 40
        with door.client.stream("GET", "/v1/subscribe?topic=heavy&cursor=0:0") as answer:
            assert len(follow(answer, 800)[0]) == 800
    finally:
        slow.close()


def test_the_feed_of_the_page_shows_what_was_taken(door: HttpServed) -> None:
    assert "<html" in door.client.get("/").text
    with door.client.stream("GET", "/v1/live") as answer:
        first = msgspec.json.decode(next(event["data"] for event in events(answer) if "data" in event))
    assert isinstance(first, dict)
    until = time.monotonic() + 20
    while 'running{route="/v1/live"} 0\n' not in door.client.get("/metrics").text:
        assert time.monotonic() < until


# Frames.


class FramesOf:
    """W1 on a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._reader = socket, FrameReader()
        self._came: list[Frame] = []

    def send(self, *frames: Frame) -> None:
        self._socket.send(b"".join(map(encode_frame, frames)))

    def next(self) -> Frame:
        while not self._came:
            data = self._socket.recv(timeout=20)
            assert isinstance(data, bytes)
            self._came += [frame._replace(payload=bytes(frame.payload)) for frame in self._reader.feed(data)]
        return self._came.pop(0)

    def next_of(self, kind: FrameType) -> Frame:
        while (frame := self.next()).type is not kind:
            pass
        return frame


def hello(**fields: Any) -> Frame:
    return Frame(FrameType.HEARTBEAT, Flag.NONE, 0, encode(Hello(**fields)))


def write(number: int, *deltas: dict[str, Any]) -> Frame:
    payload = b"\n".join(map(msgspec.json.encode, deltas))
    return Frame(FrameType.DELTA, Flag.WANTS_ACK | Flag.BATCHED, number, payload)


def frames_url(door: HttpServed) -> str:
    return f"ws://127.0.0.1:{door.port}/v1/frames"


def test_a_websocket_speaks_w1(door: HttpServed) -> None:
    with connect(frames_url(door)) as socket:
        frames = FramesOf(socket)
        frames.send(hello(producer="browser"), write(1, view("f1"), view("f2")))
        assert decode(frames.next().payload, Welcome).mark == 0
        ack = decode(frames.next_of(FrameType.ACK).payload, Ack)
        assert ack.accepted == 2
        frames.send(Frame(FrameType.HEARTBEAT, Flag.NONE, 9, encode(Heartbeat())))


def test_frames_in_pieces_are_put_together(door: HttpServed) -> None:
    data = encode_frame(hello(producer="pieces")) + encode_frame(write(1, view("f3")))
    with connect(frames_url(door)) as socket:
        for start in range(0, len(data), 7):
            socket.send(data[start : start + 7])
        frames = FramesOf(socket)
        assert decode(frames.next_of(FrameType.ACK).payload, Ack).accepted == 1


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (encode_frame(write(1)), NackReason.HELLO_EXPECTED),
        (b"GET / HTTP/1.1\r\n\r\n", NackReason.BAD_MAGIC),
        (encode_frame(Frame(FrameType.HEARTBEAT, Flag.NONE, 0, b"{")), NackReason.BAD_PAYLOAD),
        (encode_frame(Frame(FrameType.HEARTBEAT, Flag.NONE, 0, bytes(70_000))), NackReason.PAYLOAD_TOO_LARGE),
        (encode_frame(hello(token="tdm_" + "x" * 43)), NackReason.UNAUTHENTICATED),
        ("text", NackReason.BAD_PAYLOAD),
    ],
)
def test_what_is_no_hello_is_refused_in_w1(door: HttpServed, first: bytes | str, reason: NackReason) -> None:
    with connect(frames_url(door)) as socket:
        socket.send(first)
        assert decode(FramesOf(socket).next().payload, Nack).reason is reason
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=20)


def test_a_page_of_a_stranger_gets_no_websocket(door: HttpServed) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(frames_url(door), additional_headers={"Origin": "https://evil.example"})
    assert refused.value.response.status_code == 403


def test_the_coordinator_holds_a_token_to_what_it_may_do(tmp_path: Any) -> None:
    with http_served(tmp_path / "home", "[serve]\nrequire_token = true\n") as door:
        token, _ = TokenStore(door.home).create("writer", ["write:shop"])
        with connect(frames_url(door)) as socket:
            frames = FramesOf(socket)
            frames.send(hello(producer="nobody"))
            assert decode(frames.next().payload, Nack).reason is NackReason.UNAUTHENTICATED
        headers = {"Authorization": f"Bearer {token}"}
        for fields, sent in (({"token": token}, {}), ({}, headers)):  # in the hello, or as other requests have it
            with connect(frames_url(door), additional_headers=sent) as socket:
                frames = FramesOf(socket)
                frames.send(hello(producer="limited", **fields), write(1, view("b", namespace="bank")))
                frames.next_of(FrameType.HEARTBEAT)
                assert decode(frames.next_of(FrameType.NACK).payload, Nack).reason is NackReason.NOT_ALLOWED


def test_a_websocket_that_reads_nothing_holds_up_nobody(door: HttpServed) -> None:
    async def flood() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(
            b"GET /v1/frames HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert b"101" in await reader.readline()
        frame = encode_frame(Frame(FrameType.HEARTBEAT, Flag.NONE, 0, b"{" + b" " * 60_000))
        # An endless message: its beginning says 10 MB, and it never ends.
        writer.write(b"\x82\xff" + (10_000_000).to_bytes(8, "big") + bytes(4) + frame)
        await writer.drain()
        writer.close()

    asyncio.run(flood())
    assert door.client.get("/-/healthy").status_code == 200
