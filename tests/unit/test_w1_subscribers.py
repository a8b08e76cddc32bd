"""The door for subscribers: cursors, durable names, topics and their own pace, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.conversations import clock, connected, line, lines, send, subscriber, talk
from tests.support.served import ServedHome, home_at, served
from tidemark.client.connection import Connection
from tidemark.client.deliveries import Delivery
from tidemark.client.errors import ConnectionLostError, NackedError
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import DeliveryForm, Subscribe, Topic

# Batches soon: what is sent is waited for.
QUICK = "[batch]\nmax_ms = 20\n"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[ServedHome]:
    with served(home_at(tmp_path / "home", QUICK), clock=clock) as found:
        yield found


async def ids(connection: Connection, wants: Subscribe, count: int) -> list[str]:
    """The ids of the first deltas that come, each delivery acknowledged."""
    found: list[str] = []
    deliveries: AsyncIterator[Delivery] = connection.subscribe(wants)
    async for delivery in deliveries:
        found += [json.loads(text)["delta_id"] for text in delivery.lines()]
        connection.acknowledge(delivery.number)
        if len(found) >= count:
            break
    return found


def test_a_subscriber_gets_what_is_in_the_log_and_then_what_comes_each_delta_once_w7(door: ServedHome) -> None:
    async def conversation() -> None:
        producer = await connected(door)
        for number in range(1, 11):
            await send(producer, number, line(number))
            if number == 5:
                await asyncio.to_thread(door.platform.seal)  # a part comes from a segment, a part from the log
        reader = await subscriber(door)
        reading = asyncio.ensure_future(ids(reader, Subscribe(cursor={0: 0}), 20))
        for number in range(11, 21):
            await send(producer, number, line(number))
        assert await reading == [f"d-{number}" for number in range(1, 21)]

    talk(conversation)


def test_without_a_cursor_a_subscription_begins_now_p1(door: ServedHome) -> None:
    async def conversation() -> None:
        producer, reader = await connected(door), await subscriber(door)
        await send(producer, 1, line(1))
        reading = asyncio.ensure_future(ids(reader, Subscribe(), 1))
        assert await reader.subscribed == {0: 1}
        await send(producer, 2, line(2))
        assert await reading == ["d-2"]

    talk(conversation)


def test_a_durable_name_goes_on_behind_what_it_acknowledged_also_after_a_restart_w7(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home", QUICK)
    with served(home, clock=clock) as door:

        async def first() -> None:
            producer, reader = await connected(door), await subscriber(door)
            for number in range(1, 5):
                await send(producer, number, line(number))
            found = await ids(reader, Subscribe(name="search", cursor={0: 0}), 4)
            assert found == ["d-1", "d-2", "d-3", "d-4"]
            await reader.close()

        talk(first)
    with served(home, clock=clock) as door:

        async def second() -> None:
            producer, reader = await connected(door), await subscriber(door)
            await send(producer, 5, line(5))
            assert await ids(reader, Subscribe(name="search"), 1) == ["d-5"]

        talk(second)


def test_what_was_not_acknowledged_comes_again_w7(door: ServedHome) -> None:
    async def conversation() -> None:
        producer = await connected(door)
        await send(producer, 1, line(1))
        for _ in range(2):
            reader = await subscriber(door)
            async for delivery in reader.subscribe(Subscribe(name="search", cursor=None if _ else {0: 0})):
                assert [json.loads(text)["delta_id"] for text in delivery.lines()] == ["d-1"]
                break  # without a word
            await reader.close()
            await asyncio.sleep(0.1)

    talk(conversation)


def test_no_more_is_sent_than_may_be_unacknowledged_w7(door: ServedHome) -> None:
    async def conversation() -> None:
        producer, reader = await connected(door), await subscriber(door)
        got: list[Delivery] = []

        async def read() -> None:
            async for delivery in reader.subscribe(Subscribe(max_unacked=2)):
                got.append(delivery)  # noqa: PERF401 - it is looked at before the end

        task = asyncio.ensure_future(read())
        await reader.subscribed
        for number in range(1, 6):
            await send(producer, number, line(number))
            await asyncio.to_thread(door.platform.shards[0].close_batch)
        await asyncio.sleep(0.5)
        assert [delivery.number for delivery in got] == [1, 2]
        while len(got) < 5:
            reader.acknowledge(got[-1].number)
            await asyncio.sleep(0.05)
        assert [json.loads(text)["delta_id"] for each in got for text in each.lines()] == [
            f"d-{number}" for number in range(1, 6)
        ]
        task.cancel()

    talk(conversation)


def test_topics_choose_before_delivery_p2(door: ServedHome) -> None:
    async def conversation() -> None:
        producer = await connected(door)
        sample = {"labels": {"host": "a"}, "value": 1.0}
        await send(producer, 1, lines(1, 2, entity="item-1"))
        await send(producer, 2, line(3, "item-2"))
        await send(producer, 3, line(4, namespace="fleet", kind="sample", sample=sample, signal=None))
        cases: list[tuple[tuple[Topic, ...], set[str]]] = [
            ((Topic(namespace="fleet"),), {"d-4"}),
            ((Topic(kind="signal", key="item-2"),), {"d-3"}),
            ((Topic(key="item-1"), Topic(kind="sample")), {"d-1", "d-2", "d-4"}),
            ((), {"d-1", "d-2", "d-3", "d-4"}),
        ]
        for topics, wanted in cases:
            reader = await subscriber(door)
            assert set(await ids(reader, Subscribe(topics=topics, cursor={0: 0}), len(wanted))) == wanted
            await reader.close()

    talk(conversation)


def test_columns_are_delivered_with_the_cursor_in_their_schema_w7(door: ServedHome) -> None:
    async def conversation() -> None:
        producer, reader = await connected(door), await subscriber(door)
        await send(producer, 1, lines(1, 2))
        async for delivery in reader.subscribe(Subscribe(cursor={0: 0}, form=DeliveryForm.ARROW)):
            assert delivery.table()["delta_id"].to_pylist() == ["d-1", "d-2"]
            assert delivery.head.cursor == {0: 1}
            break

    talk(conversation)


def test_what_is_delivered_can_be_sent_again_as_it_is_w7(door: ServedHome) -> None:
    async def conversation() -> None:
        producer, reader = await connected(door), await subscriber(door)
        await send(producer, 1, line(1, priority="high"))
        async for delivery in reader.subscribe(Subscribe(cursor={0: 0})):
            [text] = delivery.lines()
            break
        found = json.loads(text)
        assert (found.pop("epoch"), found.pop("ordinal"), found.pop("producer")) == (1, 0, "web")
        for name in ("shard", "sequence", "received_ts", "key"):
            del found[name]
        again = await send(await connected(door, "other"), 1, json.dumps(found).encode())
        assert again.duplicate == 1

    talk(conversation)


@pytest.mark.parametrize(
    ("wants", "reason"),
    [
        (Subscribe(causal=True), NackReason.NOT_SUPPORTED),
        (Subscribe(merged=True), NackReason.NOT_SUPPORTED),
        (Subscribe(name="No Name"), NackReason.BAD_PAYLOAD),
        (Subscribe(cursor={7: 1}), NackReason.BAD_PAYLOAD),
    ],
)
def test_a_subscription_that_cannot_be_is_refused_in_words_w7(
    door: ServedHome, wants: Subscribe, reason: NackReason
) -> None:
    async def conversation() -> None:
        reader = await subscriber(door)
        with pytest.raises(NackedError) as error:
            await ids(reader, wants, 1)
        assert error.value.nack.reason is reason

    talk(conversation)


def test_a_durable_name_is_for_one_connection_at_a_time_w7(door: ServedHome) -> None:
    async def conversation() -> None:
        producer = await connected(door)
        first, second = await subscriber(door), await subscriber(door)
        losing = asyncio.ensure_future(ids(first, Subscribe(name="search", cursor={0: 0}), 1))
        await first.subscribed
        winning = asyncio.ensure_future(ids(second, Subscribe(name="search"), 1))
        with pytest.raises(ConnectionLostError) as error:
            await losing
        assert error.value.nack is not None
        assert error.value.nack.reason is NackReason.FENCED
        await send(producer, 1, line(1))
        assert await winning == ["d-1"]

    talk(conversation)


def test_a_subscriber_that_does_not_read_costs_no_memory_and_misses_nothing_c9(tmp_path: Path) -> None:
    settings = QUICK + "queue_batches = 2\n"
    with served(home_at(tmp_path / "home", settings), clock=clock) as door:

        async def conversation() -> None:
            producer, reader = await connected(door), await subscriber(door)
            got: list[str] = []
            deliveries: Any = reader.subscribe(Subscribe(max_unacked=1))
            reading = asyncio.ensure_future(anext(deliveries))
            await reader.subscribed
            for number in range(1, 41):
                await send(producer, number, line(number))
                await asyncio.to_thread(door.platform.shards[0].close_batch)
            assert door.platform.shards[0].core.tracker.total_bytes < 1_000_000
            delivery = await reading
            while True:
                got += [json.loads(text)["delta_id"] for text in delivery.lines()]
                reader.acknowledge(delivery.number)
                if len(got) >= 40:
                    break
                delivery = await anext(deliveries)
            assert got == [f"d-{number}" for number in range(1, 41)]

        talk(conversation)
