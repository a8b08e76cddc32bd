"""The door for producers: numbers, acknowledgements, refusals and flow, over real sockets."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.support.conversations import NOW_US, connected, line, lines, refused, send, talk
from tests.support.served import ServedHome, home_at, served
from tidemark.client.connection import Connection
from tidemark.client.errors import ConnectionLostError, NackedError
from tidemark.coordinator.platform import Platform
from tidemark.gateway.door import LOOK_S
from tidemark.model.shard_errors import ShardStoppedError
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.messages import Hello, LevelName, Role


@pytest.fixture
def door(tmp_path: Path) -> Iterator[ServedHome]:
    with served(home_at(tmp_path / "home"), clock=lambda: NOW_US) as found:
        yield found


def test_a_write_is_acknowledged_when_it_is_flushed_with_what_became_of_each_delta_w4(door: ServedHome) -> None:
    async def conversation() -> None:
        connection = await connected(door)
        assert (connection.welcome.mark, connection.welcome.instance) == (0, 1)
        first = send(connection, 1, lines(1, 2))
        second = send(connection, 2, b"\n".join([line(3), b"{", line(1)]))
        assert (await first).accepted == 2
        found = await second
        assert (found.accepted, found.duplicate, found.refused) == (1, 1, 1)
        [told] = found.refusals
        assert (told.sequence, told.ordinal, told.reason) == (2, 1, "malformed")
        assert door.platform.shards[0].flushed_epoch == 2
        await connection.close()

    talk(conversation)


def test_an_acknowledgement_covers_a_whole_group_and_every_write_has_its_own_outcome_w4(door: ServedHome) -> None:
    async def conversation() -> None:
        connection = await connected(door)
        sent = [send(connection, number, line(number) if number % 7 else b"nonsense") for number in range(1, 101)]
        outcomes = await asyncio.gather(*sent)
        for number, outcome in enumerate(outcomes, 1):
            assert (outcome.accepted, outcome.refused) == ((1, 0) if number % 7 else (0, 1))
        await connection.close()

    talk(conversation)


def test_a_retry_is_answered_a_gap_is_refused_and_another_write_under_a_used_number_too_q2(door: ServedHome) -> None:
    async def conversation() -> None:
        first = await connected(door)
        await send(first, 1, lines(1, 2))
        await first.close()
        again = await connected(door)
        assert again.welcome.mark == 1
        retry = await send(again, 1, lines(1, 2))
        assert retry.is_retry
        assert (retry.accepted, retry.duplicate) == (0, 0)
        assert (await refused(send(again, 1, lines(8, 9)))).reason is NackReason.NUMBER_REUSE
        nack = await refused(send(again, 3, line(3)))
        assert (nack.reason, nack.expected, nack.is_final) == (NackReason.SEQUENCE_GAP, 2, False)
        assert (await send(again, 2, line(2))).duplicate == 1
        await again.close()

    talk(conversation)


def test_what_nothing_can_be_made_of_uses_its_number_up_also_after_a_restart_q2(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home")

    async def conversation(door: ServedHome) -> None:
        connection = await connected(door)
        sent = [
            connection.write(1, FrameType.BATCH, b"no arrow", rows=1, flags=Flag.BATCHED),
            send(connection, 2, line(2)),
            connection.write(3, FrameType.DELTA, b"no zstd", rows=1, flags=Flag.BATCHED | Flag.COMPRESSED),
            connection.write(4, FrameType.DELTA, b"", rows=1, flags=Flag.BATCHED),
        ]
        for future, reason in ((sent[0], NackReason.BAD_PAYLOAD), (sent[2], NackReason.BAD_COMPRESSION)):
            nack = await refused(future)
            assert (nack.reason, nack.is_final) == (reason, True)
        assert (await sent[1]).accepted == 1
        assert (await refused(sent[3])).is_final

    with served(home, clock=lambda: NOW_US) as door:
        talk(lambda: conversation(door))
    with served(home, clock=lambda: NOW_US) as door:

        async def again() -> None:
            connection = await connected(door)
            assert connection.welcome.mark == 4
            assert (await refused(send(connection, 1, line(1)))).reason is NackReason.REFUSED_BEFORE
            assert (await send(connection, 5, line(5))).accepted == 1

        talk(again)


def test_columns_and_rows_of_the_same_deltas_are_the_same_write_w2(door: ServedHome) -> None:
    async def conversation() -> None:
        connection = await connected(door)
        await send(connection, 1, lines(1, 2))
        table = pa.Table.from_pylist([json.loads(line(number)) for number in (1, 2)])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        found = await connection.write(1, FrameType.BATCH, sink.getvalue().to_pybytes(), rows=2, flags=Flag.BATCHED)
        assert found.is_retry

    talk(conversation)


def test_an_older_instance_is_told_that_it_is_fenced_and_may_not_come_back_q2(door: ServedHome) -> None:
    async def conversation() -> None:
        first = await connected(door)
        await send(first, 1, line(1))
        second = await connected(door)
        lost = await asyncio.wait_for(asyncio.shield(first.closed), 10)
        assert lost is not None
        assert lost.nack is not None
        assert lost.nack.reason is NackReason.FENCED
        with pytest.raises(NackedError) as error:
            await connected(door, instance=first.welcome.instance)
        assert error.value.nack.reason is NackReason.FENCED
        assert (await send(second, 2, line(2))).accepted == 1
        same = await connected(door, instance=second.welcome.instance)  # its own, after a cut
        assert (same.welcome.mark, same.welcome.instance) == (2, second.welcome.instance)
        # The answer to that hello might have been lost: what it was told before still counts.
        again = await connected(door, instance=second.welcome.instance)
        assert (await send(again, 3, line(3))).accepted == 1

    talk(conversation)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(producer=None), NackReason.BAD_HELLO),
        (Hello(producer="No Name"), NackReason.BAD_HELLO),
        (Hello(producer="web", shard=7), NackReason.BAD_HELLO),
        (Hello(producer="web", role=Role.REPLICA), NackReason.NOT_SUPPORTED),
        (Hello(producer="web", token="tdm_nonsense"), NackReason.UNAUTHENTICATED),  # noqa: S106 - it is none
    ],
)
def test_a_hello_is_refused_in_words_w5(door: ServedHome, hello: Hello, reason: NackReason) -> None:
    async def conversation() -> None:
        with pytest.raises(NackedError) as error:
            await Connection.open(door.url, hello)
        assert error.value.nack.reason is reason
        assert error.value.nack.closes

    talk(conversation)


@pytest.mark.parametrize(
    "broken", [b"GET / HTTP/1.1\r\n\r\n", b"\xd3\x02" + bytes(30), b"\xd3\x01\x00\x00" + bytes(16)]
)
def test_bytes_that_are_no_frames_end_their_connection_and_no_other_w3(door: ServedHome, broken: bytes) -> None:
    async def conversation() -> None:
        polite = await connected(door)
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(broken)
        said = await reader.read()  # to its end: the door closes
        assert said[2] == FrameType.NACK
        assert (await send(polite, 1, line(1))).accepted == 1
        writer.close()

    talk(conversation)


@contextmanager
def no_disk_for_a_while(door: ServedHome) -> Iterator[threading.Event]:
    """Groups wait for the disk until the event is set."""
    core, go_on = door.platform.shards[0].core, threading.Event()
    persist = core.persist

    def slowly(group: Any) -> Any:
        go_on.wait(30)
        return persist(group)

    with patch.object(core, "persist", slowly):
        try:
            yield go_on
        finally:
            go_on.set()


def test_nothing_is_acknowledged_before_it_is_on_the_disk_c2(door: ServedHome) -> None:
    async def conversation() -> None:
        connection = await connected(door)
        with no_disk_for_a_while(door) as go_on:
            sent = [send(connection, number, line(number)) for number in range(1, 6)]
            await asyncio.sleep(0.3)
            assert not any(future.done() for future in sent)
            assert door.platform.shards[0].applied_epoch == 5
            go_on.set()
            assert sum(outcome.accepted for outcome in await asyncio.gather(*sent)) == 5

    talk(conversation)


def test_no_more_than_the_window_is_taken_in_before_it_is_answered_w6(tmp_path: Path) -> None:
    with served(home_at(tmp_path / "home"), window=2_000, clock=lambda: NOW_US) as door:

        async def conversation() -> None:
            connection = await connected(door)
            with no_disk_for_a_while(door) as go_on:
                sent = [send(connection, number, line(number)) for number in range(1, 301)]  # without asking for room
                await asyncio.sleep(0.3)
                taken = door.platform.shards[0].applied_epoch
                assert 0 < taken * len(line(1)) < 2_000 + 2 * len(line(1))
                go_on.set()
                assert sum(outcome.accepted for outcome in await asyncio.gather(*sent)) == 300

        talk(conversation)


def test_without_room_a_write_is_given_back_and_may_come_again_c8(tmp_path: Path) -> None:
    settings = "[bounds]\ndeltas = 3\n"
    with served(home_at(tmp_path / "home", settings), clock=lambda: NOW_US) as door:
        shard = door.platform.shards[0]

        async def conversation() -> None:
            connection = await connected(door)
            # Nothing is flushed while the shard's lock is taken by somebody else: what is sent fills the bounds.
            tracker = shard.core.tracker
            tracker.deltas += 3
            first, second = send(connection, 1, line(1)), send(connection, 2, line(2))
            nack = await refused(first)
            assert nack.reason is NackReason.BACKPRESSURE
            assert nack.retry_after_ms
            assert not nack.is_final
            assert (await refused(second)).reason in {NackReason.SEQUENCE_GAP, NackReason.BACKPRESSURE}
            tracker.deltas -= 3
            assert (await send(connection, 1, line(1))).accepted == 1
            too_large = await refused(send(connection, 2, lines(*range(10, 20))))
            assert (too_large.reason, too_large.is_final) == (NackReason.TOO_LARGE, True)
            assert (await send(connection, 3, line(3))).accepted == 1

        talk(conversation)
        assert door.admitting.counts["backpressure"] >= 1


def test_a_number_of_a_thin_producer_goes_to_every_shard_w5(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home", "shards = 3\n")
    with served(home, clock=lambda: NOW_US) as door:

        async def conversation() -> None:
            connection = await connected(door)
            found = await send(connection, 1, line(1, "one"))
            assert len(found.epochs) == 1
            everywhere = b"\n".join(line(number, f"item-{number}") for number in range(2, 40))
            assert set((await send(connection, 2, everywhere)).epochs) == {0, 1, 2}
            marks = {number: shard.core.open_producer("other") for number, shard in door.platform.shards.items()}
            assert set(marks.values()) == {(1, 0)}
            assert (await send(connection, 2, everywhere)).is_retry
            assert (await refused(send(connection, 1, line(1, "two")))).reason is NackReason.NUMBER_REUSE

        talk(conversation)
    with served(home, clock=lambda: NOW_US) as door:

        async def again() -> None:
            connection = await connected(door)
            assert connection.welcome.mark == 2
            retry = await send(connection, 1, line(1, "one"))
            assert retry.is_retry
            # Another write whose delta lies in a shard that had none of the first one.
            first = door.platform.split([line(1, "one")])
            other = next(
                name for name in map(str, range(100)) if door.platform.split([line(1, name)]).keys() != first.keys()
            )
            assert (await refused(send(connection, 1, line(1, other)))).reason is NackReason.NUMBER_REUSE
            with pytest.raises(NackedError) as error:
                await connected(door, shard=1)
            assert error.value.nack.reason is NackReason.NUMBERING

        talk(again)


def test_a_connection_to_one_shard_takes_only_its_deltas_w5(tmp_path: Path) -> None:
    with served(home_at(tmp_path / "home", "shards = 2\n"), clock=lambda: NOW_US) as door:
        split = door.platform.split([line(number, f"item-{number}") for number in range(20)])

        async def conversation() -> None:
            connection = await connected(door, shard=1)
            mine, strange = (b"\n".join(split[shard]) for shard in (1, 0))  # type: ignore[arg-type]
            assert (await send(connection, 1, mine)).epochs == {1: 1}
            nack = await refused(send(connection, 2, strange))
            assert (nack.reason, nack.is_final) == (NackReason.BAD_PAYLOAD, True)
            assert "belong to shard 0" in nack.message

        talk(conversation)


def test_each_level_that_is_wanted_is_acknowledged_when_it_is_reached_w4(tmp_path: Path) -> None:
    durable = {0: 0}
    with served(home_at(tmp_path / "home"), clock=lambda: NOW_US, durable_epochs=lambda: durable) as door:

        async def conversation() -> None:
            levels = (LevelName.APPLIED, LevelName.FLUSHED, LevelName.DURABLE)
            connection = await connected(door, levels=levels)
            in_the_lake = send(connection, 1, line(1), wanted=LevelName.DURABLE)
            assert (await send(connection, 2, line(2), wanted=LevelName.FLUSHED)).accepted == 1
            await asyncio.sleep(1.5 * LOOK_S)  # the door has looked at the tables since
            assert not in_the_lake.done()
            durable[0] = 1
            assert (await in_the_lake).level is LevelName.DURABLE
            assert (await send(connection, 3, line(3), wanted=LevelName.APPLIED)).level is LevelName.APPLIED

        talk(conversation)


def test_a_stopping_door_says_goodbye_and_answers_what_was_sent_c10(tmp_path: Path) -> None:
    with served(home_at(tmp_path / "home"), clock=lambda: NOW_US) as door:

        async def conversation() -> None:
            connection = await connected(door)
            sent = [send(connection, number, line(number)) for number in range(1, 200)]
            await asyncio.gather(*sent[:1])
            draining = asyncio.to_thread(door.call, door.door.drain(1_000))
            task = asyncio.ensure_future(draining)
            assert sum(outcome.accepted for outcome in await asyncio.gather(*sent)) == 199
            await task
            with pytest.raises(ConnectionLostError):
                send(connection, 200, line(200))

        talk(conversation)


def test_the_silent_and_the_slow_are_let_go_w3(tmp_path: Path) -> None:
    time_s = [time.monotonic()]
    with served(home_at(tmp_path / "home"), clock=lambda: NOW_US, now=lambda: time_s[0]) as door:

        async def conversation() -> None:
            nobody, _a = await asyncio.open_connection("127.0.0.1", door.port)
            begun, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(b"\xd3\x01\x05\x00")
            silent = await connected(door)
            time_s[0] += 11
            for reader in (nobody, begun):
                assert (await reader.read())[2] == FrameType.NACK
            time_s[0] += 31
            lost = await asyncio.wait_for(asyncio.shield(silent.closed), 10)
            assert lost is not None
            assert lost.nack is not None
            assert lost.nack.reason is NackReason.TIMEOUT

        talk(conversation)


def test_a_failed_disk_is_answered_with_outcome_unknown_and_the_number_goes_on_after_a_restart_c7(
    tmp_path: Path,
) -> None:
    home = home_at(tmp_path / "home")

    async def conversation(door: ServedHome) -> None:
        connection = await connected(door)
        await send(connection, 1, line(1))

        def broken(_: object) -> None:
            raise OSError(5, "Input/output error")

        door.platform.shards[0].core.persist = broken  # type: ignore[assignment, method-assign]
        nack = await refused(send(connection, 2, line(2)))
        assert nack.reason is NackReason.OUTCOME_UNKNOWN
        assert nack.closes

    def serve_until_it_fails() -> None:
        with served(home, clock=lambda: NOW_US) as door:
            talk(lambda: conversation(door))

    with pytest.raises(ShardStoppedError, match="it failed before it was shut down"):
        serve_until_it_fails()
    with Platform.open(home, clock=lambda: NOW_US) as platform:
        assert platform.shards[0].open_producer("web")[1] == 1
