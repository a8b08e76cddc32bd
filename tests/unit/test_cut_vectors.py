"""Vectors are cut in the log: older changes are refused from then on, after every restart, and on replay (K4)."""

from pathlib import Path

import msgspec

from tests.support.live import (
    TEN_O_CLOCK,
    HeldDisk,
    crashed_copy,
    new_home,
    open_platform,
    reasons,
    sample,
    signal,
    vector,
)
from tidemark import Platform
from tidemark.log.control import Control, EarliestRaised, VectorsCut, decode_controls, encode_controls
from tidemark.model.timegrid import DAY_US, HOUR_US
from tidemark.observe.status import read_cut, read_raised, read_status
from tidemark.shard_state.state import ShardState

CUT = TEN_O_CLOCK - DAY_US


def send(platform: Platform, name: str, at: int) -> None:
    platform.producer("p").write([vector(name, "offset", amount=1.0, at=at)]).wait()


def test_k4_only_vectors_are_cut_and_too_old_is_told_first(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        platform.cut_vectors(CUT)
        platform.raise_earliest(CUT - HOUR_US)
        write = [
            signal("signal", at=CUT - 1),
            sample("sample", 1.0, at=CUT - 1),
            vector("vector", "delete", at=CUT - HOUR_US),
            vector("ancient", "delete", at=CUT - HOUR_US - 1),
            vector("wrong", "offset", at=CUT - 1),  # and without its amount
            vector("later", "create", values=[1.0], at=CUT + 1),
            {**vector("mixed", "delete", at=CUT - 1), "kind": "signal"},
        ]
        platform.producer("p").write(write).wait()
    assert reasons(home) == {
        "signal": None,
        "sample": None,
        "vector": "below_horizon",
        "ancient": "too_old",
        "wrong": "below_horizon",
        "later": None,
        "mixed": "payload_mismatch",
    }


def test_k4_it_never_moves_back_and_the_same_again_changes_nothing(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        send(platform, "first", TEN_O_CLOCK)
        platform.cut_vectors(CUT)
        send(platform, "second", TEN_O_CLOCK)
        platform.cut_vectors(CUT)
        platform.cut_vectors(CUT - HOUR_US)
        send(platform, "old", CUT - 1)
        assert read_cut(home) == (CUT, {0: 1})
        send(platform, "third", TEN_O_CLOCK)
        platform.cut_vectors(CUT + 1)
        send(platform, "equal", CUT)
    assert read_cut(home) == (CUT + 1, {0: 4})
    refused = {name for name, reason in reasons(home).items() if reason == "below_horizon"}
    assert refused == {"old", "equal"}


def test_k4_every_shard_is_cut_or_it_does_not_count(tmp_path: Path) -> None:
    home = new_home(tmp_path, "shards = 3\n")
    with open_platform(home) as platform:
        platform.producer("p").write([vector(f"d{n}", "delete", vector_id=f"v{n}") for n in range(30)]).wait()
        platform.shards[1].cut_vectors(CUT)
        assert read_cut(home) is None
        platform.producer("p").write([vector(f"e{n}", "delete", vector_id=f"v{n}") for n in range(30)]).wait()
        platform.cut_vectors(CUT - HOUR_US)
        cut = read_cut(home)
        assert cut == (CUT - HOUR_US, {0: 2, 1: 1, 2: 2})
        assert cut.is_settled({0: 2, 1: 1, 2: 7})
        assert not cut.is_settled({0: 2, 1: 1})


def test_k4_what_is_on_its_way_to_the_disk_was_taken_before_it(tmp_path: Path) -> None:
    """A write that was decided on without the cut has an epoch that has to be waited for, and none behind it is old."""
    home, disk = new_home(tmp_path / "home"), HeldDisk()
    with open_platform(home, disk=disk) as platform:
        producer, shard = platform.producer("p"), platform.shards[0]
        disk.hold_next_sync()
        held = producer.write([vector("held", "delete", at=CUT - 1)])
        disk.is_held.wait()
        with shard._changed:  # as `cut_vectors`, which would wait for the disk
            shard.core.cut_vectors(CUT)
        disk.let_go.set()
        held.wait()
        producer.write([vector("old", "delete", at=CUT - 1)]).wait()
        assert read_cut(home) == (CUT, {0: 1})
    assert reasons(home) == {"held": None, "old": "below_horizon"}


def test_k4_epochs_that_a_crash_took_are_not_waited_for(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        send(platform, "first", TEN_O_CLOCK)
        home = crashed_copy(home, tmp_path / "crashed")
    with open_platform(home) as platform:
        assert platform.shards[0].applied_epoch > 1, "epochs were reserved, and nobody knows which were given out"
        platform.cut_vectors(CUT)
        assert read_cut(home) == (CUT, {0: 1})
    [status] = read_status(home)
    assert read_cut(home) == (CUT, {0: status.sealed_epoch})


def test_k4_logs_and_states_without_a_cut_are_read_as_before() -> None:
    messages: list[Control] = [EarliestRaised(7), VectorsCut(8, 3)]
    assert decode_controls(memoryview(encode_controls(messages))) == messages
    assert decode_controls(memoryview(b'[{"type":"earliest_raised","earliest_us":7}]')) == messages[:1]
    assert msgspec.json.decode(b'{"next_file":2,"earliest_us":7}', type=ShardState).vectors_cut is None


def test_k4_a_cut_raises_nothing_else(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        platform.cut_vectors(CUT)
    assert read_raised(home) is None
    with open_platform(home) as platform:
        platform.raise_earliest(CUT)
    assert read_cut(home) == (CUT, {0: 0})
