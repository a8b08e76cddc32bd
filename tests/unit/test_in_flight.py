"""What acknowledgements say of single writes (W4): level after level."""

import asyncio

from tidemark.client.in_flight import InFlight, Written
from tidemark.wire.messages import Ack, LevelName, RefusedDelta, WriteOutcome

APPLIED, FLUSHED, DURABLE = LevelName


def test_a_write_that_is_wanted_durable_hears_of_every_level_and_keeps_what_was_decided_between() -> None:
    async def run() -> None:
        flying, heard = InFlight(0, lambda _: None), list[Written]()
        futures = {number: asyncio.get_running_loop().create_future() for number in (1, 2)}
        for number, future in futures.items():
            flying.add(number, 10, 3, DURABLE, future, heard.append if number == 1 else None)
        flying.acknowledge(2, True, Ack(APPLIED))
        refused = RefusedDelta(1, 2, "not_finite", "NaN")
        flying.acknowledge(2, True, Ack(FLUSHED, {0: 5}, 3, 2, 1, (WriteOutcome(1, 1, 1, 1, False, (0,)),), (refused,)))
        assert not futures[1].done()
        flying.acknowledge(1, True, Ack(DURABLE, {0: 4}))
        assert [each.level for each in heard] == [APPLIED, FLUSHED, DURABLE]
        done = futures[1].result()
        assert (done.accepted, done.duplicate, done.refused, done.duplicates) == (1, 1, 1, (0,))
        assert done.refusals == (refused,)
        assert not futures[2].done()
        flying.acknowledge(2, True, Ack(DURABLE, {0: 5}))
        assert futures[2].result().accepted == 3

    asyncio.run(run())


def test_a_write_that_was_sent_again_reaches_a_later_level_too() -> None:
    async def run() -> None:
        flying = InFlight(7, lambda _: None)
        again, new = (asyncio.get_running_loop().create_future() for _ in range(2))
        flying.add(8, 10, 1, DURABLE, new)
        flying.add(3, 10, 1, DURABLE, again)
        flying.acknowledge(8, True, Ack(FLUSHED, {0: 9}, 1, outcomes=(WriteOutcome(3, 0, 0, 0, True),)))
        flying.acknowledge(3, True, Ack(DURABLE, {0: 2}))
        assert again.result().is_retry
        assert not new.done()

    asyncio.run(run())
