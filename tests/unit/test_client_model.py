"""The law of the client: whatever fails and restarts, what was taken arrives once and in order (Q2, C14).

A state machine drives real clients against a server with faults. What it holds them to is a list: what was sent, in its
order. Nothing of it may be missing at the end, or be there twice, and what a client was told is safe must be there.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import tidemark
from tidemark.client import Client, NotYetError, RefusedError, Sent
from tidemark.testing import server
from tidemark.testing.server import Server as _Server

SOON_S = 30.0


class ClientMachine(RuleBasedStateMachine):
    """One producer: a client with a spool, closed and opened again, and a server that fails as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tidemark-client-"))
        self.manager = server(window=2_000)
        self.server: _Server = self.manager.__enter__()
        self.sent: list[int] = []
        self.refused: set[int] = set()
        self.handles: list[tuple[Sent, list[int]]] = []
        self.is_away = False

    @initialize(rows=st.integers(1, 7), compress=st.booleans(), seed=st.integers(0, 99))
    def begin(self, rows: int, compress: bool, seed: int) -> None:
        self.options: dict[str, Any] = {"rows": rows, "compress": compress, "random": Random(seed)}
        self.client = self.connect()

    def connect(self) -> Client:
        return tidemark.connect(
            self.server.url,
            producer="shop",
            spool=self.folder / "spool",
            linger_s=0.001,
            exit_s=0.0,
            longest_wait_s=0.01,
            **self.options,
        )

    @rule(count=st.integers(1, 20))
    def send(self, count: int) -> None:
        numbers = list(range(len(self.sent), len(self.sent) + count))
        deltas = [{"n": number} for number in numbers]
        self.handles.append((self.client.send(deltas), numbers))
        for delta in deltas:
            delta["n"] = -1  # C14: what the caller does with its objects afterwards changes nothing
        self.sent += numbers

    @rule()
    def cut(self) -> None:
        self.server.cut()

    @rule(writes=st.integers(1, 3))
    def lose_answers(self, writes: int) -> None:
        self.server.lose_answers(writes)

    @rule(writes=st.integers(1, 3), retry_after_ms=st.none() | st.integers(0, 2))
    def push_back(self, writes: int, retry_after_ms: int | None) -> None:
        self.server.refuse("backpressure", writes=writes, retry_after_ms=retry_after_ms)

    @rule(seconds=st.sampled_from([0.0, 0.002]))
    def delay(self, seconds: float) -> None:
        self.server.delay(seconds)

    @rule(window=st.integers(1, 500), retry_after_ms=st.integers(0, 2))
    def press(self, window: int, retry_after_ms: int) -> None:
        self.server.backpressure(window, retry_after_ms)

    @rule()
    def goodbye(self) -> None:
        self.server.goodbye(10)

    @rule()
    def turn_away(self) -> None:
        self.server.turn_away(1)

    @rule()
    def server_goes_or_comes(self) -> None:
        self.server.start() if self.is_away else self.server.stop()
        self.is_away = not self.is_away

    @rule(timeout=st.sampled_from([0.0, 0.01]))
    def client_restarts(self, timeout: float) -> None:
        """What is not acknowledged stays in the spool: its next client sends it."""
        report = self.client.close(timeout)
        assert report.in_spool == report.left
        self.handles = [(handle, numbers) for handle, numbers in self.handles if handle.outcome.waiting == 0]
        self.client = self.connect()

    @invariant()
    def acknowledged_is_there(self) -> None:
        # First what the client says, then what the server has.
        told = [number for handle, numbers in self.handles if handle.outcome.waiting == 0 for number in numbers]
        assert {delta["n"] for delta in self.server.deltas}.issuperset(told)

    @invariant()
    def nothing_is_there_twice_and_the_order_is_kept(self) -> None:
        there = [delta["n"] for delta in self.server.deltas]
        assert there == self.sent[: len(there)]

    def teardown(self) -> None:
        try:
            if hasattr(self, "client"):
                self.server.start()
                self.server.delay(0.0)
                self.server.backpressure(10_000)
                assert self.client.flush(SOON_S), self.client.stats
                assert [delta["n"] for delta in self.server.deltas] == self.sent
                assert self.client.close(SOON_S).left == 0
                assert not list((self.folder / "spool").glob("*.spool"))
        finally:
            if hasattr(self, "client"):
                self.client.close(0.0)
            self.manager.__exit__(None, None, None)
            shutil.rmtree(self.folder)


ClientMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestClientMachine = ClientMachine.TestCase


def test_a_handle_that_was_told_of_a_final_refusal_is_the_only_hole() -> None:
    """Random final refusals: what is missing at the server is exactly what the handles say was not taken."""
    random = Random(5)
    with server() as found, tidemark.connect(found.url, producer="shop", rows=3, linger_s=0.0) as client:
        handles: list[tuple[Sent, list[int]]] = []
        for start in range(0, 300, 5):
            if random.random() < 0.2:
                found.refuse("bad_payload", is_final=True)
            numbers = list(range(start, start + 5))
            handles.append((client.send([{"n": number} for number in numbers]), numbers))
        assert client.flush(SOON_S)
        there = {delta["n"] for delta in found.deltas}
        for handle, numbers in handles:
            with suppress(RefusedError, NotYetError):
                handle.wait(timeout=SOON_S)
            outcome = handle.outcome
            assert outcome.accepted == len(there.intersection(numbers))
            assert outcome.accepted + outcome.not_taken == 5
        assert len(there) < 300
