"""Who may speak at the door: tokens, scopes, and their end, over real sockets."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.conversations import clock, connected, line, refused, send, subscriber, talk
from tests.support.served import ServedHome, home_at, served
from tidemark.client.connection import Connection
from tidemark.client.errors import NackedError
from tidemark.gateway.access.tokens import TokenStore
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Hello, Subscribe, Topic


@pytest.fixture
def door(tmp_path: Path) -> Iterator[ServedHome]:
    with served(home_at(tmp_path / "home", "[serve]\nrequire_token = true\n"), clock=clock) as found:
        yield found


def token(door: ServedHome, *scopes: str) -> str:
    secret, _ = TokenStore(door.home).create("test", scopes)
    assert secret is not None
    return secret


def test_a_token_writes_to_its_namespaces_and_to_no_other_w10(door: ServedHome) -> None:
    async def conversation() -> None:
        with pytest.raises(NackedError) as error:
            await connected(door)
        assert error.value.nack.reason is NackReason.UNAUTHENTICATED
        connection = await connected(door, token=token(door, "write:shop"))
        assert (await send(connection, 1, line(1))).accepted == 1
        mixed = b"\n".join([line(2), line(3, namespace="fleet")])
        nack = await refused(send(connection, 2, mixed))
        assert (nack.reason, nack.is_final) == (NackReason.NOT_ALLOWED, False)
        assert "'fleet'" in nack.message
        assert (await send(connection, 2, line(2))).accepted == 1
        # What nobody can read the namespace of is nobody's, and is refused by itself.
        assert (await send(connection, 3, b"{\n" + line(4))).refused == 1
        assert door.admitting.counts["not_allowed"] == 2

    talk(conversation)


def test_a_token_reads_its_namespaces_and_no_other_w10(door: ServedHome) -> None:
    async def conversation() -> None:
        reader = await subscriber(door, token=token(door, "read:shop"))
        with pytest.raises(NackedError) as error:
            await anext(aiter(reader.subscribe(Subscribe())))
        assert error.value.nack.reason is NackReason.NOT_ALLOWED
        again = await subscriber(door, token=token(door, "read:shop", "write:shop"))
        producer = await connected(door, token=token(door, "write:*"))
        await send(producer, 1, line(1))
        async for delivery in again.subscribe(Subscribe(topics=(Topic(namespace="shop"),), cursor={0: 0})):
            assert len(delivery.lines()) == 1
            break
        with pytest.raises(NackedError) as error:
            await connected(door, token=token(door, "read:*"))
        assert error.value.nack.reason is NackReason.NOT_ALLOWED

    talk(conversation)


def test_a_revoked_token_ends_its_connections_w10(door: ServedHome) -> None:
    secret = token(door, "write:*")

    async def conversation() -> None:
        connection = await connected(door, token=secret)
        TokenStore(door.home).revoke("test")
        lost = await asyncio.wait_for(asyncio.shield(connection.closed), 10)
        assert lost is not None
        assert lost.nack is not None
        assert lost.nack.reason is NackReason.UNAUTHENTICATED

    talk(conversation)


def test_the_homes_owner_needs_no_token_over_the_homes_own_socket_w10(door: ServedHome) -> None:
    async def conversation() -> None:
        connection = await Connection.open(door.local, Hello(producer="web"))
        assert (await send(connection, 1, line(1))).accepted == 1

    talk(conversation)


def test_a_flood_of_those_that_say_nothing_takes_no_place_from_others_w3(tmp_path: Path) -> None:
    settings = "[serve]\nunauthenticated_connections = 5\n"
    with served(home_at(tmp_path / "home", settings), clock=clock) as door:

        async def conversation() -> None:
            silent = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(50)]
            connection = await connected(door)
            assert (await send(connection, 1, line(1))).accepted == 1
            said = await asyncio.wait_for(silent[0][0].read(), 10)
            assert b"too_many_connections" in said

        talk(conversation)
