"""A retry is the same write; another one under a used number is an error, and nothing is lost behind an answer (Q2)."""

import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, sample, signal, vector
from tidemark import Delta, Level, Platform
from tidemark.coordinator import retries
from tidemark.door.decode import to_batch
from tidemark.event_time.watermarks import Watermarks
from tidemark.model.event_time_rules import EventTimeRules
from tidemark.model.log_schema import SENT_SCHEMA
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import NumberReuseError, WriteFormatError
from tidemark.shard_state.producers import KEPT_WRITES, ProducerState
from tidemark.shard_state.state import STATE_FILE, ShardState, load, save
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home
from tidemark.verdicts.arrival import Arrivals, NumberedWrite
from tidemark.verdicts.delta_hashes import with_hashes
from tidemark.verdicts.digests import digest_of
from tidemark.verdicts.identities import Identities


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def delta(number: int, kind: str) -> dict[str, Any]:
    if kind == "sample":
        return sample(f"d{number}", number / 3, host="a", zone=f"z{number}")
    if kind == "vector":
        return vector(f"d{number}", "replace", values=[0.5, float(number)], clock={"a": 1, "b": number})
    return signal(f"d{number}", entity=f"e{number}")


kinds = st.sampled_from(["signal", "sample", "vector"])
writes = st.lists(st.builds(delta, st.integers(0, 5), kinds), min_size=1, max_size=6)
malformed = st.sampled_from(
    [
        b"{",
        b'{"kind": "signal"}',
        {"kind": "signal", "delta_id": 3},
        b"[1]",
        {"kind": "sample", "sample": {"value": "x"}},
    ]
)


def columns_of(deltas: list[dict[str, Any]]) -> pa.RecordBatch:
    """The same in columns."""
    rows = []
    for each in deltas:
        row = {**each}
        if "signal" in row:
            weight = row["signal"].get("weight", 0.0)
            payload = {name: value for name, value in row["signal"].items() if name != "weight"}
            row["signal"] = {"count": 1} | payload | {"weight_millionths": round(weight * 1_000_000)}
        for kind, name in (("sample", "labels"), ("vector", "clock")):
            if kind in row and name in row[kind]:
                row[kind] = {**row[kind], name: list(row[kind][name].items())}
        rows.append(row)
    known = [{name: row.get(name) for name in SENT_SCHEMA.names} for row in rows]
    return to_batch(pa.RecordBatch.from_pylist(known, SENT_SCHEMA))


@given(writes)
def test_the_digest_is_the_same_in_every_form(deltas: list[dict[str, Any]]) -> None:
    in_json = [json.dumps(each).encode() for each in deltas]
    spaced = [json.dumps(each, indent=1, sort_keys=True) for each in deltas]
    structs = [msgspec.convert(each, Delta) for each in deltas]
    batch = columns_of(deltas)
    forms = [in_json, spaced, structs, batch, with_hashes(batch)]
    assert {digest_of(form) for form in forms} == {digest_of(deltas)}


@given(st.lists(st.one_of(writes, st.lists(malformed, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_the_digest_of_a_write_does_not_depend_on_its_neighbours(group: list[list[Any]]) -> None:
    settings = Settings()
    arrivals = Arrivals(0, settings, Watermarks(EventTimeRules.of(settings)), Identities(100))
    numbered = [NumberedWrite(at + 1, "web", at + 1, TEN_O_CLOCK, deltas) for at, deltas in enumerate(group)]
    rows, _ = arrivals.decide(numbered)
    assert rows.writes.digests == [digest_of(deltas) for deltas in group]


CHANGES: list[dict[str, Any]] = [
    {"namespace": "other"},
    {"delta_id": "other"},
    {"event_ts": TEN_O_CLOCK + 1},
    {"priority": "high"},
    {"source": "remote"},
    {"origin": "elsewhere"},
    {"signal": {"entity_id": "e", "signal": "view", "count": 2}},
    {"signal": {"entity_id": "e", "signal": "buy", "count": 1}},
    {"signal": {"entity_id": "e", "signal": "view", "count": 1, "weight": 0.5}},
    {"signal": {"entity_id": "f", "signal": "view", "count": 1}},
]


@pytest.mark.parametrize("change", CHANGES, ids=json.dumps)
def test_any_change_is_another_write(home: Home, change: dict[str, Any]) -> None:
    first = signal("d") | {"signal": {"entity_id": "e", "signal": "view", "count": 1}}
    with Platform.open(home) as platform:
        producer = platform.producer("web")
        producer.write([first, signal("x")]).wait()
        again = platform.producer("web", from_start=True)
        other = [{**first, **change}, signal("x")]
        with pytest.raises(NumberReuseError, match="under number 1 before") as refused:
            again.write(other)
        assert refused.value.write == other
        assert again.write([first, signal("x")]).wait().is_retry


@pytest.mark.parametrize(
    "other", [[signal("b"), signal("a")], [signal("a")], [signal("a"), signal("b"), signal("b")], [b"{", signal("b")]]
)
def test_order_and_number_of_deltas_count(home: Home, other: list[Any]) -> None:
    with Platform.open(home) as platform:
        platform.producer("web").write([signal("a"), signal("b")])
        with pytest.raises(NumberReuseError):
            platform.producer("web", from_start=True).write(other)


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_retry_is_known_wherever_the_write_lies(
    home: Home, is_flushed: bool, is_restarted: bool, is_sealed: bool
) -> None:
    def send_again(platform: Platform) -> None:
        again = platform.producer("web", from_start=True)
        with pytest.raises(NumberReuseError):
            again.write([signal("other")])
        receipt = again.write([json.dumps(signal("a"))]).wait()
        assert (receipt.is_retry, receipt.epochs) == (True, {0: 1})

    with Platform.open(home) as platform:
        sent = platform.producer("web").write([signal("a")])
        if is_flushed:
            sent.wait()
        if is_sealed:
            platform.seal()
        if not is_restarted:
            send_again(platform)
    if is_restarted:
        with Platform.open(home) as platform:
            send_again(platform)


def test_malformed_deltas_are_compared_as_they_were_sent(home: Home) -> None:
    with Platform.open(home) as platform:
        platform.producer("web").write([b'{"kind": "signal", "a": 1}', {"kind": 3}])
        again = platform.producer("web", from_start=True)
        with pytest.raises(NumberReuseError):
            again.write([b'{"kind": "signal", "a": 2}', {"kind": 3}])
        assert again.write([{"a": 1, "kind": "signal"}, b'{"kind":3}']).wait().is_retry


def test_a_retry_further_back_than_the_newest_hundred_is_answered_without_its_epoch(home: Home) -> None:
    durable: dict[int, int] = {}
    with Platform.open(home, durable_epochs=lambda: durable) as platform:
        producer = platform.producer("web")
        for number in range(KEPT_WRITES + 5):
            sent = producer.write([signal(f"d{number}")])
        sent.wait()
        again = platform.producer("web", from_start=True)
        old = [again.write([signal("whatever")]).wait() for _ in range(5)]
        assert [(receipt.is_retry, receipt.epochs, receipt.accepted) for receipt in old] == [(True, {}, 0)] * 5
        durable[0] = 6
        assert again.write([signal("d5")]).wait(Level.DURABLE, timeout=60).epochs == {0: 6}
        shard = platform.shards[0]
        instance = again._instances[0]
        assert shard.write("web", instance, 1, [signal("whatever")]).wait(Level.DURABLE, timeout=60).epoch is None


@pytest.mark.parametrize("number", [0, -5])
def test_a_number_below_one_is_refused_with_a_sentence(home: Home, number: int) -> None:
    with Platform.open(home) as platform:
        shard = platform.shards[0]
        instance, _ = shard.open_producer("web")
        with pytest.raises(WriteFormatError, match="Number writes from 1"):
            shard.write("web", instance, number, [signal("a")])


def test_a_retry_is_compared_without_the_lock(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    comparing, go_on = threading.Event(), threading.Event()

    def slowly(deltas: Any) -> int:
        comparing.set()
        assert go_on.wait(30)
        return digest_of(deltas)

    with Platform.open(home) as platform:
        platform.producer("web").write([signal("a")]).wait()
        again, other = platform.producer("web", from_start=True), platform.producer("other")
        monkeypatch.setattr(retries, "digest_of", slowly)
        thread = threading.Thread(target=lambda: again.write([signal("a")]))
        thread.start()
        assert comparing.wait(30)
        assert other.write([signal("b")]).wait(timeout=30).accepted == 1
        go_on.set()
        thread.join()


def test_producers_of_an_older_home_are_moved_to_the_ledger(home: Home) -> None:
    with Platform.open(home) as platform:
        platform.producer("web").write([signal("a")])
    path, disk = home.log(0) / STATE_FILE, RealDisk()
    state = load(disk, path, ShardState)
    assert state is not None
    older = {"old": ProducerState(3, 7, {7: "too large"}), "web": ProducerState(1, 1)}
    save(disk, path, msgspec.structs.replace(state, producers=older, ledger=[]))
    with Platform.open(home) as platform:
        shard = platform.shards[0]
        assert shard.open_producer("old") == (4, 7)
        assert shard.open_producer("web") == (2, 1)
        assert shard.write("web", 2, 1, [signal("anything")]).wait().is_retry
    moved = load(disk, path, ShardState)
    assert moved is not None
    assert not moved.producers
    assert moved.ledger


def test_a_write_goes_on_behind_many_producers_and_all_are_remembered(home: Home) -> None:
    names = [f"p{number}" for number in range(300)]
    with Platform.open(home) as platform:
        for name in names:
            platform.shards[0].core.open_producer(name)
            platform.shards[0].write(name, 1, 1, [signal(f"{name}-1")])
        platform.seal()
    with Platform.open(home) as platform:
        marks = [platform.shards[0].core.open_producer(name) for name in names]
    assert marks == [(2, 1)] * len(names)
