"""How many connections there may be: whoever floods the door costs nobody else their place (W3)."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tidemark.gateway.access.connection_limits import ConnectionLimits, TooManyConnectionsError
from tidemark.model.settings import ServeSettings
from tidemark.wire.errors import NackReason

SMALL = ServeSettings(connections=6, connections_per_token=3, unauthenticated_connections=4)


def test_a_flood_from_one_address_only_pushes_out_itself() -> None:
    limits = ConnectionLimits[str](SMALL)
    assert limits.opened("honest", "10.0.0.1") is None
    gone = [limits.opened(f"flood {n}", "10.0.0.66") for n in range(100)]
    assert gone == [None] * 3 + [f"flood {n}" for n in range(97)], "the oldest of its own"
    limits.greeted("honest", "token")
    assert (limits.present, limits.waiting) == (1, 3)


def test_a_flood_takes_no_place_of_those_that_are_known() -> None:
    limits = ConnectionLimits[int](SMALL)
    for n in range(1_000):
        limits.opened(n, f"10.0.{n // 256}.{n % 256}")
    for n in range(1_000, 1_006):
        limits.opened(n, "192.168.0.1")
        limits.greeted(n, None)
    assert limits.present == SMALL.connections


def test_a_flood_from_many_addresses_pushes_out_the_oldest() -> None:
    limits = ConnectionLimits[int](SMALL)
    gone = [limits.opened(n, f"10.0.0.{n}") for n in range(10)]
    assert gone == [None] * 4 + list(range(6))


def test_one_token_cannot_take_the_places_of_others() -> None:
    limits = ConnectionLimits[int](SMALL)
    for n in range(4):
        limits.opened(n, "10.0.0.1")
    for n in range(3):
        limits.greeted(n, "one")
    with pytest.raises(TooManyConnectionsError, match="This token has 3 connections") as refused:
        limits.greeted(3, "one")
    assert refused.value.reason is NackReason.TOO_MANY_CONNECTIONS
    limits.greeted(3, "another")
    limits.closed(0)
    limits.opened(4, "10.0.0.1")
    limits.greeted(4, "one")


def test_the_places_in_all_are_bounded_also_for_whoever_needs_no_token() -> None:
    limits = ConnectionLimits[int](SMALL)
    for n in range(6):
        limits.opened(n, "127.0.0.1")
        limits.greeted(n, None)
    limits.opened(6, "127.0.0.1")
    with pytest.raises(TooManyConnectionsError, match="The server has 6 connections"):
        limits.greeted(6, "one")
    limits.closed(6)
    assert (limits.present, limits.waiting) == (6, 0)


class Counting(RuleBasedStateMachine):
    """Connections come, say hello and go in any order."""

    connections = Bundle("connections")

    def __init__(self) -> None:
        super().__init__()
        self.limits = ConnectionLimits[int](SMALL)
        self.number = 0
        self.waiting: dict[int, str] = {}
        self.present: dict[int, str | None] = {}

    @rule(target=connections, address=st.sampled_from("abc"))
    def open(self, address: str) -> int:
        self.number += 1
        gone = self.limits.opened(self.number, address)
        self.waiting[self.number] = address
        assert (gone is not None) == (len(self.waiting) > SMALL.unauthenticated_connections)
        if gone is not None:
            assert gone != self.number
            of = list(self.waiting.values())
            assert of.count(self.waiting[gone]) == max(map(of.count, of))
            del self.waiting[gone]
        return self.number

    @rule(connection=connections, token=st.sampled_from([None, "one", "two"]))
    def greet(self, connection: int, token: str | None) -> None:
        if connection not in self.waiting:
            return
        is_full = len(self.present) >= SMALL.connections
        is_token_full = token is not None and list(self.present.values()).count(token) >= SMALL.connections_per_token
        if is_full or is_token_full:
            with pytest.raises(TooManyConnectionsError):
                self.limits.greeted(connection, token)
        else:
            self.limits.greeted(connection, token)
            self.present[connection] = token
            del self.waiting[connection]

    @rule(connection=consumes(connections))
    def close(self, connection: int) -> None:
        self.limits.closed(connection)
        self.waiting.pop(connection, None)
        self.present.pop(connection, None)

    @invariant()
    def counts_what_is_there(self) -> None:
        assert (self.limits.waiting, self.limits.present) == (len(self.waiting), len(self.present))

    def teardown(self) -> None:
        for connection in [*self.waiting, *self.present]:
            self.limits.closed(connection)
        assert (self.limits.waiting, self.limits.present) == (0, 0)
        assert not self.limits._by_address
        assert not self.limits._by_token


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=50, stateful_step_count=30)
