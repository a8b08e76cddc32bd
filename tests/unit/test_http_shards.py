"""Writes for several shards by HTTP (W5, W8): every delta's outcome is told by its place in the request."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.http_served import HttpServed, http_served, view
from tidemark.coordinator.shard import Shard
from tidemark.gateway.w1 import producing
from tidemark.model.shard_errors import BackpressureError


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with http_served(tmp_path_factory.mktemp("shards") / "home", "shards = 4\n") as found:
        yield found


def of(number: object, entity: int, **changes: Any) -> dict[str, Any]:
    return view(number, signal={"entity_id": f"item-{entity}", "signal": "view"}, **changes)


def test_refusals_are_named_by_their_places_in_the_request_whatever_shards_the_deltas_belong_to(
    door: HttpServed,
) -> None:
    deltas = [of(f"r{place}", place, **({"kind": "none"} if place % 3 == 0 else {})) for place in range(24)]
    said = door.post(*deltas).json()
    assert (said["accepted"], said["refused_count"]) == (16, 8)
    assert [each["at"] for each in said["refused"]] == list(range(0, 24, 3))
    assert len(said["epochs"]) > 1


def test_each_request_of_a_shared_write_is_told_of_its_own_deltas_over_all_shards(door: HttpServed) -> None:
    door.post(*[of(f"known{entity}", entity) for entity in range(12)])

    def send(number: int) -> None:
        deltas = [of(f"s{number}", number), of(f"known{number % 12}", number % 12), {"x": number}]
        said = door.post(*deltas).json()
        assert (said["accepted"], said["duplicate"], said["refused_count"]) == (1, 1, 1)
        assert [each["at"] for each in said["refused"]] == [2]

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(send, range(96)))


@pytest.fixture
def full_shard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Shards in this list have no room."""
    full: list[int] = []
    try_write = Shard.try_write

    def try_it(shard: Shard, *arguments: Any) -> Any:
        if shard.number in full:
            raise BackpressureError("There is no room.", 0.01)
        return try_write(shard, *arguments)

    monkeypatch.setattr(Shard, "try_write", try_it)
    monkeypatch.setattr(producing, "PATIENCE_S", 0.05)
    return full


def test_what_only_some_shards_took_is_named_and_the_same_request_brings_the_rest(
    door: HttpServed, full_shard: list[int]
) -> None:
    deltas = [of(f"p{place}", place) for place in range(24)]
    epochs = door.post(*[of(f"where{place}", place) for place in range(24)]).json()["epochs"]
    assert len(epochs) == 4
    full_shard.append(3)
    sent = {"tidemark_producer": "parted", "tidemark_sequence": "1"}
    said = door.post(*deltas, **sent).json()
    left = said["not_taken"]
    assert said["level"] is None
    assert 0 < len(left) < 24
    full_shard.clear()
    assert door.post(*deltas, **sent).status_code == 200
    # Each is there once, and those that were named came with the second request.
    said = door.post(*deltas).json()
    assert (said["accepted"], said["duplicate"]) == (0, 24)
    after = [each for each in deltas if each["delta_id"] in {f"p{place}" for place in left}]
    assert len(after) == len(left)


def test_a_request_without_a_number_is_told_what_was_not_taken_when_its_time_is_over(
    door: HttpServed, full_shard: list[int]
) -> None:
    full_shard.append(3)
    deltas = [of(f"u{place}", place) for place in range(24)]
    answer = door.post(*deltas, query="?timeout=1")
    assert answer.status_code == 200, answer.text
    assert 0 < len(answer.json()["not_taken"]) < 24
    full_shard.clear()
    # The door goes on with it, and what is sent again is known by its identity.
    said = door.post(*deltas).json()
    assert (said["accepted"], said["duplicate"]) == (0, 24)
