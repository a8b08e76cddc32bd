"""Drain and rebuild (decision 0052, C7, Q3, O2): exactly once, whatever happens in between."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from assets.ingest import drain as drain_module
from assets.ingest.drain import drain, drain_all
from assets.ingest.rebuild import rebuild
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from resources.lake import Lake
from tests.support.batch import checksums, rows_of, send
from tests.support.live import TEN_O_CLOCK, hour_of, sample, signal, vector
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.tables.plans import durable_epochs

MIXED: list[list[Any]] = [
    [signal("a"), signal("b", at=hour_of(-1)), signal("a")],
    [signal("a", count=2), {"bad": 1}, sample("s", 1.5), vector("v", "create", values=[1.0, 2.0])],
    [signal("c", at=hour_of(-3)), signal("b", at=hour_of(-1))],
]


class Crash(BaseException):
    """Stands for the end of the process."""


def crash_at(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def reach(name: str) -> None:
        if name == step:
            raise Crash(name)

    monkeypatch.setattr(drain_module, "failpoint", reach)


def test_a_drain_brings_every_accepted_delta_once_and_sets_the_rest_aside(tiny_home: Home, lake: Lake) -> None:
    send(tiny_home, *MIXED)
    result = drain(lake)
    assert (result.number, result.accepted, result.refused, result.copies) == (1, 8, 1, 3)
    assert rows_of(tiny_home, "deltas", "epoch", "ordinal", "delta_id") == [
        (1, 0, "a"),
        (1, 1, "b"),
        (2, 2, "s"),
        (2, 3, "v"),
        (3, 0, "c"),
    ]
    assert rows_of(tiny_home, "dead_letters", "epoch", "ordinal", "verdict", "reason") == [
        (1, 2, "accepted", "duplicate"),
        (2, 0, "accepted", "id_reuse"),
        (2, 1, "refused", "unknown_field"),
        (3, 1, "accepted", "duplicate"),
    ]
    details = dict(rows_of(tiny_home, "dead_letters", "reason", "detail"))
    assert details["id_reuse"] == "another delta under the identity of the one at epoch 1, ordinal 0"
    assert result.touched.event == {hour_of(0), hour_of(-1), hour_of(-3)}
    assert result.touched.receipt == {TEN_O_CLOCK}
    assert durable_epochs(tiny_home) == {0: 3}
    # Drained again, nothing is left to do, and nothing changes.
    before, versions = checksums(tiny_home), [lake.version(name) for name in ("deltas", "dead_letters")]
    assert drain(lake).number == 0
    assert [lake.version(name) for name in ("deltas", "dead_letters")] == versions
    assert (durable_epochs(tiny_home), checksums(tiny_home)) == ({0: 3}, before)


def test_a_copy_of_a_drained_delta_is_found_in_the_table(tiny_home: Home, lake: Lake) -> None:
    send(tiny_home, [signal("a"), signal("b")])
    drain(lake)
    send(tiny_home, [signal("a"), signal("b", count=9), signal("c")], producer="other")
    assert drain(lake).copies == 2
    assert rows_of(tiny_home, "deltas", "epoch", "delta_id") == [(1, "a"), (1, "b"), (2, "c")]
    assert rows_of(tiny_home, "dead_letters", "delta_id", "reason", "detail", "raw_bytes") == [
        ("a", "duplicate", "a copy of the delta at epoch 1, ordinal 0", 70),
        ("b", "id_reuse", "another delta under the identity of the one at epoch 1, ordinal 1", 70),
    ]


@pytest.mark.parametrize("step", ["plan.written", "dead_letters.committed", "deltas.committed"])
def test_a_retry_after_a_crash_commits_the_same_plan(
    step: str, tiny_home: Home, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(tiny_home, *MIXED)
    with monkeypatch.context() as patched:
        crash_at(step, patched)
        with pytest.raises(Crash):
            drain(lake)
    # More has arrived since: it is the next plan's, and a copy in it is still one.
    send(tiny_home, [signal("a"), signal("z")], producer="other")
    results = drain_all(lake)
    numbers = [result.number for result in results]
    assert numbers == ([2] if step == "deltas.committed" else [1, 2])
    assert results[-1].plan is not None
    assert results[-1].plan.ranges == {0: (4, 5)}
    assert rows_of(tiny_home, "deltas", "delta_id") == [("a",), ("b",), ("c",), ("s",), ("v",), ("z",)]
    assert len(rows_of(tiny_home, "dead_letters", "epoch", "ordinal")) == 5


def test_rebuilding_all_hours_at_once_or_one_by_one_equals_the_drain(tiny_home: Home, lake: Lake) -> None:
    send(tiny_home, *MIXED)
    drain(lake)
    send(tiny_home, [signal("b", at=hour_of(-1)), signal("d", at=hour_of(-2))], producer="other")
    drain(lake)
    drained = checksums(tiny_home)
    # Sealed but not drained: no business of a rebuild.
    send(tiny_home, [signal("e"), signal("c", at=hour_of(-3)), {"worse": 2}], producer="third")
    for spec in (DELTAS, DEAD_LETTERS):
        rebuild(lake, spec, Range(hour_of(-5), hour_of(2)))
    assert checksums(tiny_home) == drained
    hours = [hour_of(number) for number in range(-3, 1)]
    random.Random(7).shuffle(hours)
    for hour in hours:
        rebuild(lake, DELTAS, Range(hour, hour + HOUR_US))
    rebuild(lake, DEAD_LETTERS, Range(TEN_O_CLOCK, TEN_O_CLOCK + HOUR_US))
    assert checksums(tiny_home) == drained
    assert durable_epochs(tiny_home) == {0: 4}
    # And the drain goes on where it was.
    assert drain(lake).copies == 1
    assert durable_epochs(tiny_home) == {0: 5}


def test_a_plan_takes_whole_segments_up_to_a_bound(tiny_home: Home, lake: Lake) -> None:
    for number in range(3):
        send(tiny_home, [signal(f"x{number}"), signal(f"y{number}")], producer=f"p{number}")
    first = drain(lake, rows_per_plan=4)
    assert (first.accepted, first.is_last) == (4, False)
    second = drain(lake, rows_per_plan=4)
    assert (second.accepted, second.is_last, durable_epochs(tiny_home)) == (2, True, {0: 3})


def test_what_a_killed_process_set_aside_is_removed_by_the_next_drain_and_the_next_rebuild(
    tiny_home: Home, lake: Lake
) -> None:
    send(tiny_home, [signal("a")])
    drain(lake)
    work: dict[str, Callable[[], object]] = {
        "a drain that finds nothing new": lambda: drain(lake),
        "a rebuild": lambda: rebuild(lake, DELTAS, [TEN_O_CLOCK]),
    }
    for name, work_again in work.items():
        left = tiny_home.plans / "scratch-of-a-killed-drain"
        left.mkdir()
        (left / "aside.parquet").write_bytes(b"half")
        other = tiny_home.plans / DELTAS.name
        work_again()
        assert not list(tiny_home.plans.glob("scratch-*")), name
        assert other.is_dir(), "nothing else goes"


def test_a_look_reads_the_last_plan_alone_however_many_there_are(tiny_home: Home, lake: Lake) -> None:
    for number in range(4):
        send(tiny_home, [signal(f"d{number}")])
        drain(lake)
    for number in range(1, 4):
        next(tiny_home.plans.rglob(f"{number:08d}.json")).write_bytes(b"nobody looks at this")
    assert durable_epochs(tiny_home) == {0: 4}
    assert drain(lake).number == 0
    send(tiny_home, [signal("d4")])
    assert drain(lake).number == 5
