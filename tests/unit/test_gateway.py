"""Every call to the JVM gets its own answer, whatever interrupts it. A few lines that speak py4j play the JVM."""

import gc
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from random import Random
from types import FrameType
from typing import Any

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import get_return_value

from resources.spark_internals import guard


class InterruptedRunError(BaseException):
    """As Dagster's, and as that of a test that takes too long: no Exception, and no KeyboardInterrupt."""


class Echo:
    """A server that answers each command with the text in it, some time later, and counts its connections."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self.open = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connected, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        self.open += 1
        # A value is missing where a command was interrupted while it was sent.
        with suppress(OSError, ValueError), connected, connected.makefile("rwb") as stream:
            while stream.readline():
                text, seconds = stream.readline().decode().split()
                stream.readline()
                time.sleep(float(seconds))
                stream.write(f"!ys{text}\n".encode())
                stream.flush()
        self.open -= 1


class Asker:
    """The Python side: asks for a text to be given back."""

    def __init__(self, server: Echo) -> None:
        self.server = server
        self._gateway = ClientServer(
            JavaParameters(port=server.port), PythonParameters(port=0, eager_load=False, daemonize=True)
        )
        guard(self._gateway)

    def ask(self, text: str, seconds: float = 0.0) -> str:
        client = self._gateway._gateway_client
        answer = client.send_command(f"c\n{text} {seconds}\ne\n")
        found: str = get_return_value(answer, client)
        return found


@pytest.fixture
def asker() -> Iterator[Asker]:
    server = Echo()
    yield Asker(server)
    server.close()


@contextmanager
def at_alarm(do: Any) -> Iterator[None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        do()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def interrupt() -> None:
    raise InterruptedRunError


def test_after_an_interrupted_call_every_call_gets_its_own_answer(asker: Asker) -> None:
    with at_alarm(interrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedRunError) as held:
            asker.ask("first", 0.3)
    time.sleep(0.3)  # by now the answer would be there to be read
    assert [asker.ask(f"n{number}") for number in range(3)] == ["n0", "n1", "n2"]
    assert held.value is not None, "what keeps the exception keeps the connection, too"
    assert asker.server.connections == 2


# Python ignores what is raised while an object is destroyed, and pytest tells of it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment_of_a_call_leave_no_answer_to_another(asker: Asker) -> None:
    random, wrong, interrupts = Random(7), list[tuple[str, str]](), 0
    kept: list[BaseException] = []
    with at_alarm(interrupt):
        for number in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.002))
                for step in range(20):
                    text = f"{number}-{step}"
                    if (answer := asker.ask(text)) != text:
                        wrong.append((text, answer))
            except InterruptedRunError as error:
                interrupts += 1
                kept = [*kept[-5:], error]
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
    assert wrong == []
    assert interrupts > 50
    assert asker.ask("end") == "end"


def test_a_call_within_a_call_gets_its_own_answer_and_so_does_the_outer_one(asker: Asker) -> None:
    inner: list[str] = []
    with at_alarm(lambda: inner.append(asker.ask("inner"))):
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            assert asker.ask("outer", 0.2) == "outer"
    assert inner == ["inner"] * 3
    opened = asker.server.connections
    assert asker.ask("after") == "after"
    assert asker.server.connections == opened, "the outer call's connection is used again"


def test_a_call_while_garbage_is_collected_takes_no_answer_from_another(asker: Asker) -> None:
    class AsksAtItsEnd:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            found.append(asker.ask("its-end"))

    found: list[str] = []
    gc.disable()  # else it might be collected in a thread of the server
    try:
        with at_alarm(gc.collect):
            for number in range(5):
                AsksAtItsEnd()
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                assert asker.ask(str(number), 0.1) == str(number)
    finally:
        gc.enable()
    assert found == ["its-end"] * 5


def test_connections_of_ended_threads_and_of_interrupted_calls_are_closed(asker: Asker) -> None:
    def ask_much(thread: int) -> list[bool]:
        return [asker.ask(f"{thread}-{number}") == f"{thread}-{number}" for number in range(50)]

    for _ in range(5):
        with ThreadPoolExecutor(6) as pool:
            assert all(all(answers) for answers in pool.map(ask_much, range(6)))
    with at_alarm(interrupt):
        for _ in range(5):
            with suppress(InterruptedRunError):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                asker.ask("lost", 0.05)
    assert asker.ask("end") == "end"
    gc.collect()
    for _ in range(100):
        if asker.server.open == 1:
            break
        time.sleep(0.02)
    assert asker.server.open == 1
