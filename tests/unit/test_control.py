"""Commands that write to a log which another process serves: they go through its control socket."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.served import home_at
from tidemark.coordinator.platform import Platform
from tidemark.gateway import places
from tidemark.gateway.control import Asked, ControlError, ControlServer, RemoteWriter, ask, seal_served, writer
from tidemark.storage.home import Home

HOUR_US = 3_600_000_000


@contextmanager
def answering(home: Home, answer: Any) -> Iterator[None]:
    """A process that serves this home, as far as its control socket goes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    places.open_door(home)
    server = ControlServer(answer)
    asyncio.run_coroutine_threadsafe(server.listen(places.control_socket(home)), loop).result()

    async def end() -> None:
        server.close()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_without_a_serving_process_a_command_opens_the_log_itself(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home")
    with writer(home) as log:
        assert isinstance(log, Platform)
    assert places.read_serving(home) is None


def test_orders_go_to_the_process_that_serves_and_its_errors_come_back(tmp_path: Path) -> None:
    home = home_at(tmp_path / ("deep" * 40) / "home")  # deeper than the system takes names of sockets
    asked: list[Asked] = []

    async def answer(question: Asked) -> Any:
        asked.append(question)
        if question.ask == "seal":
            raise ControlError("The disk is full.")
        return question.us

    with answering(home, answer):
        places.note_serving(home, places.Serving(1, 0, [], []))  # process 1 is there on every machine
        with writer(home) as log:
            assert isinstance(log, RemoteWriter)
            log.raise_earliest(HOUR_US)
            log.cut_vectors(2 * HOUR_US)
            with pytest.raises(ControlError, match=r"The disk is full\."):
                log.seal()
        assert ask(home, Asked("anything", 7)) == 7
    assert [(each.ask, each.us) for each in asked[:2]] == [("raise_earliest", HOUR_US), ("cut_vectors", 2 * HOUR_US)]
    with pytest.raises(ControlError, match="does not answer"):
        ask(home, Asked("seal"))


def test_a_drain_lets_the_serving_process_seal_first(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home")
    asked: list[str] = []

    async def answer(question: Asked) -> Any:
        asked.append(question.ask)
        return None

    seal_served(home)
    with answering(home, answer):
        places.note_serving(home, places.Serving(1, 0, [], []))
        seal_served(home)
    assert asked == ["seal"]


def test_a_note_of_a_process_that_has_died_does_not_count(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home")
    places.note_serving(home, places.Serving(2**22 + 1, 0, [], []))  # beyond any number that the system gives out
    assert places.read_serving(home) is None


def test_a_platform_has_one_name_for_ever(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home")
    first = places.platform_id(home)
    assert len(first) == 16
    assert places.platform_id(home) == first
    assert places.platform_id(home_at(tmp_path / "other")) != first
