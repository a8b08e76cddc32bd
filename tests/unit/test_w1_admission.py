"""Admission at the door: what a stream has agreed to is what it gets, and the account knows what was turned away."""

import asyncio
import json
from pathlib import Path

from tests.support.conversations import clock, connected, line, refused, send, talk
from tests.support.served import home_at, served
from tidemark.client.connection import Connection
from tidemark.client.errors import NackedError
from tidemark.observe.account import take_account
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Nack

AGREED = '[admission.streams."shop/signal"]\nrate = 100\nburst = 20\n'


async def until_taken(connection: Connection, sequence: int, payload: bytes, refusals: list[Nack]) -> None:
    """Send a write again whenever it may come again."""
    while True:
        try:
            await send(connection, sequence, payload)
        except NackedError as error:
            refusals.append(error.nack)
            await asyncio.sleep((error.nack.retry_after_ms or 0) / 1_000)
        else:
            return


def test_a_stream_gets_the_rate_that_it_agreed_to_and_hears_when_to_come_back_a2(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home", AGREED)
    refusals: list[Nack] = []
    sent = 0
    with served(home, clock=clock) as door:

        async def conversation() -> None:
            nonlocal sent
            connection = await connected(door)
            started = clock()
            number = 0
            while clock() - started < 2_000_000:
                number += 1
                payload = b"\n".join(line(10 * number + place) for place in range(10))
                sent += 10
                await until_taken(connection, number, payload, refusals)
            elapsed_s = (clock() - started) / 1_000_000
            # Not above the configured rate but for one write, and what can be saved up. (That it is not below it either
            # is shown in virtual time: this machine may be busy.)
            assert sent <= 100 * elapsed_s + 10 + 20

        talk(conversation)
        assert door.admitting.counts["rate"] == 10 * len(refusals)
    assert refusals
    assert {nack.reason for nack in refusals} == {NackReason.RATE}
    assert all(nack.retry_after_ms and not nack.is_final for nack in refusals)
    account = take_account(home)
    assert account.turned_away == {"rate": 10 * len(refusals)}
    assert account.outcomes.received == sent + 10 * len(refusals)
    assert account.unknown == []


def test_a_strict_stream_is_refused_for_good_and_goes_on_with_the_next_number_a3(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home", AGREED + 'policy = "strict"\nlag_ms = 1_000\n')
    with served(home, clock=clock) as door:

        async def conversation() -> None:
            connection = await connected(door)
            await asyncio.sleep(0.05)
            old = send(connection, 1, line(1, event_ts=clock() - 60_000_000))
            now = send(connection, 2, line(2, event_ts=clock()))
            nack = await refused(old)
            assert (nack.reason, nack.is_final) == (NackReason.LAG, True)
            assert (await now).accepted == 1

        talk(conversation)
    assert take_account(home).turned_away == {"lag": 1}


def test_a_retry_costs_no_tokens_a1(tmp_path: Path) -> None:
    with served(home_at(tmp_path / "home", AGREED), clock=clock) as door:

        async def conversation() -> None:
            connection = await connected(door)
            payload = b"\n".join(line(place) for place in range(100))  # the bucket is in debt after it
            await until_taken(connection, 1, payload, [])
            again = await connected(door)
            assert (await send(again, 1, payload)).is_retry
            nack = await refused(send(again, 2, line(1_000)))
            assert nack.reason is NackReason.RATE
            assert nack.retry_after_ms is not None
            assert 0 < nack.retry_after_ms <= 1_000

        talk(conversation)


def test_streams_without_an_agreement_are_let_in_beside_one_that_is_not_a2(tmp_path: Path) -> None:
    with served(home_at(tmp_path / "home", AGREED), clock=clock) as door:

        async def conversation() -> None:
            connection = await connected(door)
            other = b"\n".join(line(place, namespace="free") for place in range(1_000))
            for number in range(1, 6):
                found = await send(connection, number, other.replace(b"d-", b"d-%d-" % number))
                assert found.accepted == 1_000
            assert json.loads(line(1))["namespace"] == "shop"

        talk(conversation)
