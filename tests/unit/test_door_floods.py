"""Whoever floods the door with connections that say nothing costs nobody else a place, with TLS and without (W3)."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import trustme

from tests.support.served import ServedHome, home_at, served
from tidemark.client.connection import Connection
from tidemark.client.errors import NackedError
from tidemark.gateway.access.tls import server_context
from tidemark.gateway.places import w1_socket
from tidemark.storage.home import Home
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Hello
from tidemark.wire.tls import client_context

FEW = 4
LIMIT_S = 30.0
FEW_SETTINGS = f"""
[serve]
unauthenticated_connections = {FEW}
connections = 3
tls_cert = "server.pem"
tls_key = "server.key"
"""


def with_certificate(tmp_path: Path, settings: str) -> Home:
    made = home_at(tmp_path / "home", settings)
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(made.root / "server.pem"))
    (made.root / "server.key").write_bytes((made.root / "server.pem").read_bytes())
    return made


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ServedHome]:
    with served(with_certificate(tmp_path, FEW_SETTINGS)) as found:
        yield found


def listen_with_tls(found: ServedHome) -> int:
    return found.call(found.door.listen("127.0.0.1", 0, server_context(found.home)))


async def hello(address: str, ca: Path) -> None:
    tls = client_context(ca) if address.startswith("tidemarks") else None
    connection = await Connection.open(address, Hello(producer="checkout"), ssl=tls, timeout=LIMIT_S)
    await connection.close()


def flood(stack: ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connections that say nothing."""
    made = []
    for _ in range(count):
        found = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)))
        made.append(found)
    return made


def is_closed(found: socket.socket) -> bool:
    """Whether the other side has ended it; waits until it has something to say."""
    found.settimeout(LIMIT_S)
    try:
        while found.recv(4_096):
            pass
    except ConnectionResetError:
        pass
    return True


def still_open(found: socket.socket) -> bool:
    """Whether it has been told nothing: not why it is closed, and not that it is."""
    found.setblocking(False)
    try:
        found.recv(1)
    except BlockingIOError:
        return True
    return False


@pytest.mark.parametrize("is_secure", [True, False])
def test_a_flood_without_a_hello_pushes_out_itself_and_others_come_in(
    home: ServedHome, tmp_path: Path, is_secure: bool
) -> None:
    port = listen_with_tls(home) if is_secure else home.port
    address = f"{'tidemarks' if is_secure else 'tidemark'}://localhost:{port}"
    with ExitStack() as stack:
        silent = flood(stack, port, 40)
        assert all(is_closed(each) for each in silent[:-FEW])
        assert all(still_open(each) for each in silent[-FEW:])
        asyncio.run(hello(address, tmp_path / "ca.pem"))


def test_what_is_no_tls_is_closed_and_its_place_is_free_again(home: ServedHome, tmp_path: Path) -> None:
    port = listen_with_tls(home)
    with ExitStack() as stack:
        for each in flood(stack, port, 10):
            each.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert is_closed(each)
    asyncio.run(hello(f"tidemarks://localhost:{port}", tmp_path / "ca.pem"))
    assert home.door._guard._limits.waiting == 0


def test_a_connection_does_not_push_out_itself_on_its_way_from_tls_to_the_hello(tmp_path: Path) -> None:
    with served(with_certificate(tmp_path, FEW_SETTINGS.replace(f"= {FEW}", "= 1"))) as found:
        asyncio.run(hello(f"tidemarks://localhost:{listen_with_tls(found)}", tmp_path / "ca.pem"))


def test_silence_on_the_owners_socket_pushes_out_nobody(home: ServedHome) -> None:
    with ExitStack() as stack:
        strangers = flood(stack, home.port, FEW)
        for _ in range(40):
            mine = stack.enter_context(socket.socket(socket.AF_UNIX))
            mine.connect(str(w1_socket(home.home)))
        asyncio.run(hello(home.local, Path()))
        assert all(still_open(each) for each in strangers)


def test_the_owners_socket_is_not_counted(home: ServedHome) -> None:
    """Through it come the other doors: whoever fills the network's places does not close them."""

    async def steps() -> None:
        many = [await Connection.open(home.url, Hello(producer=f"p{n}")) for n in range(3)]
        with pytest.raises(NackedError) as refused:
            await Connection.open(home.url, Hello(producer="p4"))
        assert refused.value.nack.reason is NackReason.TOO_MANY_CONNECTIONS
        many += [await Connection.open(home.local, Hello(producer=f"q{n}")) for n in range(3)]
        for each in many:
            await each.close()

    asyncio.run(asyncio.wait_for(steps(), LIMIT_S))
