"""What strangers send to the HTTP door (W3, W10): bombs, slow senders, floods, other people's pages, bad tokens."""

import gzip
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import msgspec
import pyarrow as pa
import pytest
import zstandard
from websockets.sync.client import connect

from tests.support.http_served import ARROW, JSON, LINES, HttpServed, error_of, http_served, view
from tidemark.gateway.access.tokens import TokenStore
from tidemark.gateway.http import server
from tidemark.gateway.http.writes import bodies
from tidemark.wire.frames import Flag, Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.limits import LIMITS
from tidemark.wire.messages import Hello, encode

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with http_served(tmp_path_factory.mktemp("hostile") / "home") as found:
        yield found


@contextmanager
def raw(door: HttpServed, said: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", door.port), timeout=20) as found:
        found.sendall(said)
        yield found


def head_of(length: int) -> bytes:
    """A write's header, with a body of this size to come."""
    lines = (
        "POST /v1/deltas HTTP/1.1",
        "host: localhost",
        f"content-type: {JSON}",
        f"content-length: {length}",
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def heard(connection: socket.socket) -> bytes:
    """Everything until the other side ends the connection.

    It resets one whose bytes it did not read to their end; what it has said before that has arrived.
    """
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            found += piece
    return found


def wait_for_end(connection: socket.socket) -> None:
    """Return when the other side has ended it; a timeout of the socket if it does not."""
    with suppress(ConnectionError):
        while connection.recv(65_536):
            pass


def still_well(door: HttpServed, name: str) -> None:
    assert door.post(view(name)).json()["accepted"] == 1
    assert door.client.get("/metrics").text.count("tidemark_http_body_bytes 0\n") == 1


# Bombs.


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(bytes(64 * MEGABYTE))),
        ("gzip", gzip.compress(b"[" + b" " * (20 * MEGABYTE) + b"]")),
        ("gzip", b"".join(gzip.compress(bytes(MEGABYTE)) for _ in range(64))),
        ("zstd", zstandard.ZstdCompressor().compress(bytes(64 * MEGABYTE))),
        ("zstd", zstandard.ZstdCompressor().compress(bytes(8 * MEGABYTE))),
        ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(b"{}")),
        ("gzip", gzip.compress(b"{}")[:-4]),
        ("gzip", zlib.compress(b"{}")),
        ("zstd", b"not packed"),
        ("zstd", zstandard.ZstdCompressor().compress(b"{}" * 100)[:-3]),
    ],
)
def test_what_unpacks_to_too_much_or_not_at_all_is_refused_without_being_unpacked(
    door: HttpServed, encoding: str, body: bytes
) -> None:
    answer = door.post_body(body, content_encoding=encoding)
    assert answer.status_code in {400, 413}
    assert error_of(answer)["reason"] in {"bad_compression", "too_large"}
    still_well(door, f"after {encoding} {len(body)}")


@pytest.mark.parametrize(
    "body", [b"[" * MEGABYTE, b'{"a":' * 200_000, b"[" * 50_000 + b"]" * 50_000, b'[{"a":' + b"[" * 40_000]
)
def test_deep_json_is_refused(door: HttpServed, body: bytes) -> None:
    answer = door.post_body(body)
    assert (answer.status_code, error_of(answer)["reason"]) == (400, "bad_payload")


def test_deep_json_in_a_line_is_that_lines_refusal(door: HttpServed) -> None:
    body = b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"\n" + msgspec.json.encode(view("beside deep"))
    said = door.post_body(body, LINES).json()
    assert (said["accepted"], [each["at"] for each in said["refused"]]) == (1, [0])


def test_columns_that_claim_more_than_they_bring_are_refused(door: HttpServed) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"namespace": pa.repeat("shop" * 64, 90_000)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, pa.schema([("n", pa.null())])) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays([pa.nulls(2**31 - 1)], names=["n"]))
    for body in (sink.getvalue().to_pybytes(), rows.getvalue().to_pybytes()):
        answer = door.post_body(body, ARROW)
        assert answer.status_code in {400, 413}
        assert error_of(answer)["reason"] in {"too_large", "bad_payload"}


# Sizes, before anything is read.


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(door: HttpServed) -> None:
    with raw(door, head_of(LIMITS.payload_bytes + 1)) as connection:
        answer = heard(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"payload_too_large" in answer


def test_a_body_that_becomes_too_large_is_refused_on_the_way(door: HttpServed) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield bytes(MEGABYTE)

    with httpx.Client(base_url=door.url) as client:
        try:
            answer = client.post("/v1/deltas", content=endless(), headers={"content-type": JSON})
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            pass  # it was closed while this side was still writing
        else:
            assert answer.status_code == 413
    still_well(door, "after endless")


def test_many_large_bodies_at_once_are_told_to_come_again(door: HttpServed) -> None:
    head = head_of(LIMITS.payload_bytes)
    connections = [socket.create_connection(("127.0.0.1", door.port), timeout=20) for _ in range(9)]
    try:
        for connection in connections[:-1]:
            connection.sendall(head + b"[")
        until = time.monotonic() + 20
        while f"body_bytes {8 * LIMITS.payload_bytes}" not in door.client.get("/metrics").text:
            assert time.monotonic() < until
        connections[-1].sendall(head + b"[")
        answer = heard(connections[-1])
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
    finally:
        for connection in connections:
            connection.close()
    until = time.monotonic() + 20
    while "body_bytes 0\n" not in door.client.get("/metrics").text:
        assert time.monotonic() < until
    still_well(door, "after large ones")


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000, b"GET /" + b"a" * 100_000])
def test_a_header_has_a_bound(door: HttpServed, head: bytes) -> None:
    with raw(door, head) as connection:
        assert heard(connection).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize("trailer", [b"a: b\r\n" * 20_000, b"a: " + b"b" * 100_000])
def test_what_stands_behind_a_body_has_a_bound_too(door: HttpServed, trailer: bytes, is_together: bool) -> None:
    head = f"POST /v1/deltas HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\ntransfer-encoding: chunked\r\n\r\n"
    body = head.encode() + b"2\r\n{}\r\n0\r\n"
    # In one piece with the body, and behind it.
    with raw(door, (body + trailer) if is_together else body) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"" if is_together else trailer)
        with suppress(ConnectionError):
            assert heard(connection).startswith(b"HTTP/1.1 431 ")
    still_well(door, f"after a trailer of {len(trailer)}, {is_together}")


def test_what_is_no_http_is_answered_with_an_error_of_the_same_shape(door: HttpServed) -> None:
    with raw(door, b"\xd3\x01\x05\x00" + bytes(12)) as connection:
        answer = heard(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert set(msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])) == {"error"}


# Slow ones.


def test_whoever_says_nothing_or_stops_in_a_header_or_a_body_is_sent_away(
    door: HttpServed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADER_S", 0.3)
    monkeypatch.setattr(bodies, "PIECE_S", 0.3)
    body = head_of(100) + b"["
    for said in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n", body):
        with raw(door, said) as connection:
            assert heard(connection).startswith(b"HTTP/1.1 408 ")
    # And one that drips: every byte in time, and the header never done.
    with raw(door) as connection:
        with suppress(ConnectionError):
            for letter in b"GET /" + b"a" * 15:
                connection.sendall(bytes([letter]))
                time.sleep(0.05)
        wait_for_end(connection)
    still_well(door, "after slow ones")


def test_half_a_request_and_then_nobody_takes_nothing(door: HttpServed) -> None:
    body = msgspec.json.encode(view("halved"))
    with raw(door, head_of(len(body)) + body[:-1]):
        pass
    still_well(door, "after half")
    assert door.post_body(body).json()["accepted"] == 1


# Who may.


def test_a_page_of_a_stranger_may_do_nothing(door: HttpServed) -> None:
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{door.port + 1}"):
        answer = door.post(view("evil"), origin=origin)
        assert (answer.status_code, error_of(answer)["reason"]) == (403, "not_allowed")
    assert door.post(view("own"), origin=door.url).status_code == 200


def test_without_a_token_this_machine_is_called_by_its_own_name(door: HttpServed) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", f"evil.example:{door.port}"):
        assert door.client.get("/v1/status", headers={"host": host}).status_code == 403
    for host in ("localhost", f"localhost:{door.port}", "127.0.0.1", f"[::1]:{door.port}", "LOCALHOST"):
        assert door.client.get("/v1/status", headers={"host": host}).status_code == 200


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpServed, dict[str, str]]]:
    """A door where a token is needed, and some tokens."""
    path = tmp_path_factory.mktemp("guarded") / "home"
    with http_served(path, "[serve]\nrequire_token = true\n[namespaces.shop]\n") as found:
        store = TokenStore(found.home)
        scopes = {"writer": ["write:shop"], "reader": ["read:shop"], "all": ["write:*", "read:*"], "admin": ["admin"]}
        tokens = {name: store.create(name, scope)[0] or "" for name, scope in scopes.items()}
        yield found, {name: f"Bearer {token}" for name, token in tokens.items()}


def test_without_a_token_nothing_is_answered_but_health(guarded: tuple[HttpServed, dict[str, str]]) -> None:
    door, _ = guarded
    for path in ("/v1/status", "/v1/counts?entity=a&namespace=b", "/v1/subscribe", "/metrics", "/v1/live"):
        answer = door.client.get(path)
        assert (answer.status_code, error_of(answer)["reason"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert door.post(view("nobody")).status_code == 401
    for word in ("Bearer tdm_" + "x" * 43, "Bearer", "Basic abc", "Bearer \xff"):
        headers = [(b"authorization", word.encode("latin-1"))]
        assert door.client.get("/v1/status", headers=headers).status_code == 401
    assert door.client.get("/-/healthy").status_code == 200


@pytest.mark.parametrize("form", [JSON, LINES, ARROW])
def test_a_token_writes_to_its_namespaces_alone(guarded: tuple[HttpServed, dict[str, str]], form: str) -> None:
    door, tokens = guarded

    def body(*namespaces: str) -> bytes:
        deltas = [view(f"{form}{place}", namespace=name) for place, name in enumerate(namespaces)]
        if form == JSON:
            return msgspec.json.encode(deltas)
        if form == LINES:
            return b"\n".join(map(msgspec.json.encode, deltas))
        sink = pa.BufferOutputStream()
        table = pa.Table.from_pylist(deltas)
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    refused = door.post_body(body("shop", "bank"), form, authorization=tokens["writer"])
    assert (refused.status_code, error_of(refused)["reason"]) == (403, "not_allowed")
    assert door.post_body(body("shop"), form, authorization=tokens["reader"]).status_code == 403
    taken = door.post_body(body("shop", "shop"), form, authorization=tokens["writer"])
    assert taken.json()["accepted"] == 2  # nothing of the refused request was there before
    assert door.post_body(body("bank"), form, authorization=tokens["all"]).json()["accepted"] == 1


def test_a_token_reads_its_namespaces_alone(guarded: tuple[HttpServed, dict[str, str]]) -> None:
    door, tokens = guarded

    def status(path: str, who: str) -> int:
        return door.client.get(path, headers={"authorization": tokens[who]}).status_code

    door.post(view("read"), authorization=tokens["writer"])
    assert status("/v1/top?namespace=shop&signal=view", "reader") == 200
    assert status("/v1/top?namespace=shop&signal=view", "writer") == 403
    assert status("/v1/top?namespace=bank&signal=view", "reader") == 403
    assert status("/v1/status", "reader") == 403
    assert status("/v1/status", "all") == 200
    assert status("/v1/vector?id=a", "reader") == 403
    assert status("/v1/subscribe?topic=bank", "reader") == 403
    assert status("/v1/subscribe?topic=*", "reader") == 403


def test_keys_of_one_token_mean_nothing_to_another(guarded: tuple[HttpServed, dict[str, str]]) -> None:
    door, tokens = guarded
    for who in ("all", "admin"):
        assert door.post(view(who), idempotency_key="same", authorization=tokens[who]).json()["accepted"] == 1


def test_a_revoked_token_is_refused_at_the_next_request(guarded: tuple[HttpServed, dict[str, str]]) -> None:
    door, _ = guarded
    store = TokenStore(door.home)
    token = f"Bearer {store.create('brief', ['write:shop'])[0]}"
    assert door.post(view("brief"), authorization=token).status_code == 200
    store.revoke("brief")
    assert door.post(view("brief"), authorization=token).status_code == 401


def test_a_flood_of_strangers_costs_those_who_may_write_nothing_but_time(
    guarded: tuple[HttpServed, dict[str, str]],
) -> None:
    door, tokens = guarded
    flood = [socket.create_connection(("127.0.0.1", door.port), timeout=20) for _ in range(200)]
    try:
        for connection in flood:
            connection.sendall(head_of(1_000_000))
        assert door.post(view("in the flood"), authorization=tokens["writer"]).json()["accepted"] == 1
        for connection in flood:
            # Told that a token is needed, or pushed out by the next one.
            assert connection.recv(65_536).startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 503 "))
        text = door.client.get("/metrics", headers={"authorization": tokens["admin"]}).text
        assert "tidemark_http_body_bytes 0\n" in text  # nothing was read for them
    finally:
        for connection in flood:
            connection.close()


def test_of_those_who_say_nothing_the_oldest_make_room(tmp_path: Path) -> None:
    with http_served(tmp_path / "home", "[serve]\nunauthenticated_connections = 5\n") as door:
        assert door.post(view("known")).status_code == 200
        silent = [socket.create_connection(("127.0.0.1", door.port), timeout=20) for _ in range(5)]
        with raw(door, b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n") as newest:
            assert heard(newest).startswith(b"HTTP/1.1 200 ")
        assert heard(silent[0]).startswith(b"HTTP/1.1 503 ")
        # Who has said who it is has a place of its own.
        assert door.post(view("still known")).status_code == 200
        for connection in silent:
            connection.close()


def test_no_more_connections_than_the_settings_say(tmp_path: Path) -> None:
    with http_served(tmp_path / "home", "[serve]\nconnections = 1\n") as door:
        assert door.post(view("first")).status_code == 200
        with httpx.Client(base_url=door.url) as another:
            answer = another.get("/v1/status")
            assert (answer.status_code, error_of(answer)["reason"]) == (503, "too_many_connections")
            assert door.post(view("second")).status_code == 200
            door.client.close()
            until = time.monotonic() + 20
            while another.get("/v1/status").status_code != 200:
                assert time.monotonic() < until


def test_a_websocket_that_has_ended_gives_its_place_back(tmp_path: Path) -> None:
    with http_served(tmp_path / "home", "[serve]\nconnections = 1\n") as door:
        url = f"ws://127.0.0.1:{door.port}/v1/frames"
        hello = encode_frame(Frame(FrameType.HEARTBEAT, Flag.NONE, 0, encode(Hello(producer="ws"))))
        for _ in range(3):
            until = time.monotonic() + 20
            while True:
                with connect(url) as websocket:
                    websocket.send(hello)
                    found = next(FrameReader().feed(websocket.recv(timeout=20, decode=False)))
                    if found.type is FrameType.HEARTBEAT:
                        break
                assert time.monotonic() < until
