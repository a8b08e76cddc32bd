"""A client against a server with faults: nothing is lost, nothing is there twice, the order is kept (Q2, W4 to W6)."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tidemark
from tidemark.client import (
    Client,
    ClientError,
    ClientFullError,
    FencedError,
    NotYetError,
    RefusedError,
    ServerLostDataError,
)
from tidemark.client.errors import ClientClosedError, NotSentError, WrongServerError
from tidemark.testing import Server, server

SOON_S = 20.0


def some(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"n": number} for number in range(start, start + count)]


@pytest.fixture
def there() -> Iterator[Server]:
    with server() as found:
        yield found


def connect(to: Server, **options: Any) -> Client:
    return tidemark.connect(
        to.url,
        **{
            "producer": "shop",
            "rows": 2,
            "linger_s": 0.0,
            "random": Random(1),
            "exit_s": 0.1,
            "longest_wait_s": 0.05,
            **options,
        },
    )


def test_what_is_sent_arrives_once_and_in_order(there: Server) -> None:
    with connect(there) as client:
        handles = [client.send(some(3, start)) for start in range(0, 30, 3)]
        assert [handle.wait(timeout=SOON_S).accepted for handle in handles] == [3] * 10
    assert there.deltas == some(30)
    assert client.close().left == 0


def test_a_lost_answer_repeats_nothing(there: Server) -> None:
    with connect(there) as client:
        there.lose_answers(3)
        for start in range(0, 10, 2):
            outcome = client.send(some(2, start)).wait(timeout=SOON_S)
            assert outcome.accepted + outcome.taken_earlier == 2
        assert client.stats.connections >= 4
    assert there.deltas == some(10)


@pytest.mark.parametrize("has_spool", [False, True])
def test_a_server_that_is_away_for_a_while_gets_everything_when_it_is_back(
    there: Server, tmp_path: Path, has_spool: bool
) -> None:
    there.stop()
    with connect(there, spool=tmp_path / "spool" if has_spool else None) as client:
        sent = client.send(some(7))
        with pytest.raises(NotYetError, match="no connection to"):
            sent.wait(timeout=0.05)
        assert sent.outcome.waiting == 7
        there.start()
        assert sent.wait(timeout=SOON_S).accepted == 7
    assert there.deltas == some(7)


def test_writes_that_are_given_back_are_sent_again_in_their_order(there: Server) -> None:
    """Q2: everything behind a write that was turned away is a gap, and goes again behind it."""
    there.stop()
    with connect(there) as client:
        handles = [client.send(some(2, start)) for start in range(0, 40, 2)]
        there.refuse("backpressure", writes=2, retry_after_ms=1)
        there.start()
        for handle in handles:
            assert handle.wait(timeout=SOON_S).accepted == 2
        assert client.stats.connections == 1
    assert there.deltas == some(40)


def test_a_final_refusal_is_told_on_its_handle_and_the_client_goes_on(there: Server) -> None:
    with connect(there) as client:
        there.refuse("too_large", is_final=True, message="Too much.")
        first, second = client.send(some(2)), client.send(some(2, 2))
        with pytest.raises(RefusedError, match="Too much"):
            first.wait(timeout=SOON_S)
        assert first.outcome.not_taken == 2
        assert second.wait(timeout=SOON_S).accepted == 2
    assert there.writes("shop") == {2: some(2, 2)}


def test_a_single_bad_delta_is_in_the_outcome_with_its_place(there: Server) -> None:
    with connect(there, rows=10, linger_s=0.05) as client:
        first, second = client.send(some(2)), client.send([*some(1, 2), "no delta", *some(1, 3)])
        client.flush(SOON_S)
        assert first.outcome[:5] == (2, 0, 2, 0, 0)
        assert second.outcome[:5] == (3, 0, 2, 0, 1)
        [refusal] = second.outcome.refusals
        assert (refusal.at, refusal.reason) == (1, "malformed")


def test_another_program_with_the_same_name_stops_this_one_and_says_so(there: Server) -> None:
    client = connect(there)
    client.send(some(1)).wait(timeout=SOON_S)
    there.fence("shop")
    assert until_refused(lambda: client.send(some(1, 1)).wait(timeout=SOON_S), FencedError) == 0
    assert client.take_back() in ([], [[b'{"n":1}']])
    client.close()


def until_refused(do: Callable[[], object], error: type[Exception]) -> int:
    """How often it goes well, before this error is raised."""
    for done in range(1_000):
        try:
            do()
        except error:
            return done
    raise AssertionError(f"there was no {error.__name__}")


def test_a_cut_or_a_lost_welcome_never_fences_a_client_by_itself(there: Server) -> None:
    """The same instance goes on, however often it says hello."""
    with connect(there) as client:
        for start in range(0, 20, 2):
            client.send(some(2, start))
            there.cut()
        assert client.flush(SOON_S)
    assert there.deltas == some(20)


def test_a_server_that_lost_what_it_had_acknowledged_is_told_apart(there: Server, caplog: Any) -> None:
    client = connect(there)
    client.send(some(6)).wait(timeout=SOON_S)
    there.stop()
    there.forget("shop", 2)
    sent = client.send(some(2, 6))
    there.start()
    with pytest.raises(ServerLostDataError, match="writes 2 to 3 are lost there") as error:
        sent.wait(timeout=SOON_S)
    assert (error.value.acknowledged, error.value.mark) == (3, 1)
    assert client.take_back() == [[b'{"n":6}', b'{"n":7}']]
    with pytest.raises(ServerLostDataError):
        client.send(some(1))
    assert client.close().left == 0


def test_another_platform_at_the_same_address_is_told(there: Server) -> None:
    client = connect(there)
    client.send(some(2)).wait(timeout=SOON_S)
    there.home = "another"
    there.cut()
    with pytest.raises(WrongServerError, match="platform 'another'"):
        client.send(some(2)).wait(timeout=SOON_S)
    client.close(0.0)


def test_a_token_that_is_not_known_is_told_at_once() -> None:
    with server(tokens=frozenset({"good"})) as found:
        client = connect(found, token="bad")  # noqa: S106
        with pytest.raises(RefusedError, match="not known"):
            client.wait_connected(SOON_S)
        client.close(0.0)
        with connect(found, token="good") as client:  # noqa: S106
            assert client.wait_connected(SOON_S)
            assert client.send(some(1)).wait(timeout=SOON_S).accepted == 1


def test_memory_is_bounded_until_the_server_acknowledges(there: Server) -> None:
    """C8: a caller waits, then hears that nothing of its call was taken."""
    there.stop()
    client = connect(there, memory_bytes=100)
    taken = until_refused(lambda: client.send(some(1), timeout=0.01), ClientFullError)
    assert 5 < taken < 15
    assert client.stats.waiting_bytes <= 100
    there.start()
    client.send(some(1), timeout=SOON_S)
    assert client.flush(SOON_S)
    assert len(there.deltas) == taken + 1
    client.close()


def test_the_window_is_respected_and_may_change() -> None:
    with server(window=2_000) as found, connect(found) as client:
        found.delay(0.002)
        for start in range(0, 400, 2):
            client.send(some(2, start))
            if start == 200:
                assert client.flush(SOON_S)
                assert found.overruns == 0
                found.backpressure(window=200, retry_after_ms=1)
                client.send(some(2)).wait(timeout=SOON_S)  # it has heard of it by now
        assert client.flush(SOON_S)
        assert len(found.deltas) == 402
        assert found.overruns == 0


def test_after_a_goodbye_the_client_comes_back_and_loses_nothing(there: Server) -> None:
    """W6: it waits for what it has sent there, and for nothing else."""
    there.delay(0.001)
    with connect(there) as client:
        for start in range(0, 100, 2):
            client.send(some(2, start))
            if start % 40 == 20:
                assert client.wait_connected(SOON_S)
                there.goodbye(50)
                assert client.send(some(0)) is not None
                client.flush(SOON_S)
        assert client.flush(SOON_S)
        assert client.stats.connections > 1
    assert there.deltas == some(100)


def test_a_silent_server_is_dead_after_two_heartbeats() -> None:
    with server(heartbeat_ms=20) as found, connect(found) as client:
        client.send(some(1)).wait(timeout=SOON_S)
        found.freeze()
        assert client.send(some(1, 1)).wait(timeout=SOON_S).accepted == 1
        assert client.stats.connections == 2
        assert found.deltas == some(2)


def test_closing_without_a_spool_says_what_is_lost(there: Server) -> None:
    there.stop()
    client = connect(there)
    client.send(some(3))
    report = client.close(0.01)
    assert (report.left, report.in_spool, report.spool) == (3, 0, None)
    assert "3 deltas were not acknowledged" in str(report)
    with pytest.raises(ClientClosedError):
        client.send(some(1))


def test_leaving_the_block_with_unsent_deltas_is_an_error(there: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    there.stop()
    monkeypatch.setattr(Client, "close", lambda self, timeout=0.01, close=Client.close: close(self, 0.01))
    with pytest.raises(NotSentError, match="They are lost"), connect(there) as client:
        client.send(some(3))


def test_what_waits_for_the_disk_of_the_lake_hears_of_it(there: Server) -> None:
    with connect(there, levels=("flushed", "durable")) as client:
        assert client.send(some(3)).wait("durable", timeout=SOON_S).accepted == 3
        with pytest.raises(ClientError, match="no level"):
            client.send(some(1)).wait("solid")
    with connect(there) as client, pytest.raises(ClientError, match="levels="):
        client.send(some(1)).wait(tidemark.Level.DURABLE)


def test_a_source_that_is_read_again_from_its_start_sends_only_what_is_new(there: Server) -> None:
    for count in (4, 10):
        with connect(there, from_start=True) as client:
            client.wait_connected(SOON_S)
            outcomes = [client.send(some(2, start)).wait(timeout=SOON_S) for start in range(0, count, 2)]
    assert there.deltas == some(10)
    assert [outcome.taken_earlier for outcome in outcomes] == [2, 2, 0, 0, 0]


def test_compressed_writes_arrive_as_they_were(there: Server, tmp_path: Path) -> None:
    deltas = [{"n": number, "text": "x" * (number % 50)} for number in range(500)]
    with connect(there, rows=100, compress=True, spool=tmp_path / "spool") as client:
        client.send(deltas).wait(timeout=SOON_S)
    assert there.deltas == deltas


def test_a_log_has_a_line_for_what_was_refused_and_none_for_what_went_well(
    there: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidemark.client")
    with connect(there) as client:
        client.send(some(1)).wait(timeout=SOON_S)
        assert not caplog.records
        there.refuse("bad_payload", is_final=True)
        with pytest.raises(RefusedError):
            client.send(some(1)).wait(timeout=SOON_S)
    assert "was refused" in caplog.text
