"""The coordinator for coroutines, over the same shards (C1, C2, C8)."""

import asyncio
from pathlib import Path

import pytest

from chaos.disks import SYNCS, Fault, FaultyDisk
from tests.support.live import HandClock, HeldDisk, new_home, sealed_rows, signal
from tidemark import Level
from tidemark.coordinator.aio import AsyncPlatform
from tidemark.model.shard_errors import (
    BackpressureError,
    CoordinatorError,
    OutcomeUnknownError,
    ShardStoppedError,
    WaitTimeoutError,
)
from tidemark.storage.disk import RealDisk

OPTIONS = {"clock": HandClock(), "durable_epochs": dict}


def test_many_coroutines_write_at_once_and_each_hears_of_its_own_c1(tmp_path: Path) -> None:
    home = new_home(tmp_path)

    async def main() -> list[int]:
        async with AsyncPlatform.open(home, **OPTIONS) as platform:

            async def send(name: str) -> list[int]:
                producer = await platform.producer(name)
                receipts = [await (await producer.write([signal(f"{name}-{at}")])).wait() for at in range(10)]
                assert all(receipt.accepted == 1 for receipt in receipts)
                return [receipt.epochs[0] for receipt in receipts]

            found = await asyncio.gather(*(send(f"p{number}") for number in range(8)))
        assert all(epochs == sorted(epochs) for epochs in found)
        return [epoch for epochs in found for epoch in epochs]

    assert sorted(asyncio.run(main())) == list(range(1, 81))
    assert len(sealed_rows(home)) == 80


def test_writes_in_flight_need_no_thread_each_c1(tmp_path: Path) -> None:
    async def main() -> int:
        async with AsyncPlatform.open(new_home(tmp_path), **OPTIONS) as platform:
            producer = await platform.producer("web")
            sent = [await producer.write([signal(str(at))]) for at in range(300)]
            return len({(await each.wait()).epochs[0] for each in sent})

    assert asyncio.run(main()) == 300


def test_a_coroutine_is_told_that_the_outcome_is_unknown_and_what_was_never_written_c7(tmp_path: Path) -> None:
    disk = FaultyDisk(RealDisk())

    async def main() -> list[type[CoordinatorError]]:
        errors: list[type[CoordinatorError]] = []
        try:
            async with AsyncPlatform.open(new_home(tmp_path), disk=disk, **OPTIONS) as platform:
                producer = await platform.producer("web")
                disk.fail(Fault(SYNCS, nth=8, is_lasting=True))
                for at in range(100):
                    await (await producer.write([signal(str(at))])).wait()
        except CoordinatorError as error:
            errors.append(type(error))
        return errors

    [error] = asyncio.run(main())
    assert error in {OutcomeUnknownError, ShardStoppedError}


def test_while_there_is_no_room_others_go_on_and_in_the_end_the_write_is_given_back_c8(tmp_path: Path) -> None:
    home, disk = new_home(tmp_path, "[bounds]\ndeltas = 3"), HeldDisk()

    async def main() -> None:
        async with AsyncPlatform.open(home, disk=disk, **OPTIONS) as platform:
            producer = await platform.producer("web")
            disk.hold_next_sync()
            first = await producer.write([signal("a")])
            await asyncio.to_thread(disk.is_held.wait)
            await producer.write([signal("b"), signal("c")])
            deltas = [signal("d")]
            with pytest.raises(BackpressureError, match="3 deltas wait") as full:
                await producer.write(deltas, timeout=0.01)
            assert full.value.write is deltas
            with pytest.raises(WaitTimeoutError):
                await first.wait(Level.FLUSHED, timeout=0.01)
            disk.let_go.set()
            assert (await (await producer.write(deltas)).wait()).accepted == 1

    asyncio.run(main())
    assert [row["delta_id"] for row in sealed_rows(home)] == ["a", "b", "c", "d"]
