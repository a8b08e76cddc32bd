"""What callers do with their own objects and threads, at the public door (C14, Q2)."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, signal
from tidemark import Delta, Platform, Signal
from tidemark.coordinator import core, flusher
from tidemark.door.ownership import own, own_columns
from tidemark.log import frames
from tidemark.log import log_file as log
from tidemark.model.log_schema import SENT_SCHEMA
from tidemark.model.settings import is_name
from tidemark.model.shard_errors import WriteFormatError, WriteTooLargeError
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def stored(home: Home, column: str = "delta_id") -> list[Any]:
    with Platform.open(home) as platform:
        found: list[Any] = platform.shards[0].snapshot().read()[column].to_pylist()
        return found


def test_a_list_that_is_filled_again_after_a_write_changes_nothing_c14(home: Home) -> None:
    with Platform.open(home) as platform:
        producer = platform.producer("web")
        deltas: list[dict[str, Any]] = []
        handles = []
        for write in range(50):
            deltas.clear()
            deltas += [signal(f"{write}-{place}") for place in range(10)]
            handles.append(producer.write(deltas))
        deltas.clear()
        receipts = [handle.wait() for handle in handles]
    assert sum(receipt.accepted for receipt in receipts) == 500
    assert sorted(stored(home)) == sorted(f"{write}-{place}" for write in range(50) for place in range(10))


def test_dictionaries_and_structs_that_change_after_a_write_change_nothing_c14(home: Home) -> None:
    payload = {"entity_id": "e", "signal": "view", "count": 1}
    delta = {"namespace": "shop", "kind": "signal", "delta_id": "dict", "event_ts": TEN_O_CLOCK, "signal": payload}
    struct = Delta("shop", "signal", "struct", TEN_O_CLOCK, signal=Signal("e", "view"))
    with Platform.open(home) as platform:
        sent = platform.producer("web").write([delta, struct])
        payload["count"], delta["delta_id"], struct.delta_id = 99, "changed", "changed"
        assert struct.signal is not None
        struct.signal.count = 99
        assert sent.wait().accepted == 2
    assert stored(home) == ["dict", "struct"]
    assert [found["count"] for found in stored(home, "signal")] == [1, 1]


def test_an_array_under_a_column_that_is_filled_again_changes_nothing_c14(home: Home) -> None:
    counts = np.ones(100, dtype=np.int64)
    table = pa.table(
        {
            "namespace": ["shop"] * 100,
            "kind": ["signal"] * 100,
            "delta_id": [str(row) for row in range(100)],
            "event_ts": pa.array([TEN_O_CLOCK] * 100, pa.timestamp("us", tz="UTC")),
            "signal": pa.StructArray.from_arrays(
                [pa.array(["e"] * 100), pa.array(["view"] * 100), pa.array(counts), pa.array(np.zeros(100, np.int64))],
                ["entity_id", "signal", "count", "weight_millionths"],
            ),
        }
    )
    with Platform.open(home) as platform:
        sent = platform.producer("web").write(table)
        counts[:] = 7
        sent.wait()
    assert {found["count"] for found in stored(home, "signal")} == {1}


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.text(), json_like, max_size=4), max_size=4))
def test_what_is_owned_is_equal_and_shares_nothing_that_can_change(deltas: list[dict[str, Any]]) -> None:
    before = repr(deltas)
    owned = own(deltas)
    assert owned == deltas

    def empty(value: Any) -> None:
        if isinstance(value, dict | list):
            for each in list(value.values() if isinstance(value, dict) else value):
                empty(each)
            value.clear()

    empty(deltas)
    assert repr(owned) == before


def plain_signals(rows: int) -> pa.RecordBatch:
    fields = {"namespace": "shop", "kind": "signal"}
    sent = [{**fields, "delta_id": f"d{row}", "event_ts": row, "signal": _payload(row)} for row in range(rows)]
    schema = pa.schema([SENT_SCHEMA.field(name) for name in sent[0]])
    return pa.RecordBatch.from_pylist(sent, schema)


def _payload(row: int) -> dict[str, Any]:
    return {"entity_id": f"item-{row}", "signal": "view", "count": 1, "weight_millionths": row}


@pytest.mark.parametrize("has_others", [False, True])
def test_columns_are_copied_with_their_slices(has_others: bool) -> None:
    batch = plain_signals(5)
    if has_others:
        batch = batch.append_column("unknown", pa.nulls(5))
    owned = own_columns(batch.slice(1, 3))
    assert owned["delta_id"].to_pylist() == ["d1", "d2", "d3"]
    assert owned["signal"].to_pylist() == [_payload(row) for row in (1, 2, 3)]
    mine, theirs = (
        {buffer.address for column in each.columns for buffer in column.buffers() if buffer is not None and buffer.size}
        for each in (owned, batch)
    )
    assert not mine & theirs


def test_columns_whose_offsets_lead_nowhere_are_refused_before_they_are_copied() -> None:
    batch = plain_signals(3)
    offsets = pa.py_buffer(np.array([0, 1 << 30, 4, 6], dtype=np.int32))
    wild = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"d1d2d3")])
    with pytest.raises(WriteFormatError, match="A column of the write cannot be read"):
        own_columns(batch.set_column(2, batch.schema.field(2), wild))


@pytest.mark.parametrize("write", [b"{}", "{}", {"kind": "signal"}, signal("one"), 7, None])
def test_one_delta_instead_of_a_list_is_refused_with_a_sentence(home: Home, write: Any) -> None:
    with Platform.open(home) as platform, pytest.raises(WriteFormatError, match="A write is a list of deltas"):
        platform.producer("web").write(write)


def test_one_producer_may_be_used_by_many_threads_q2(home: Home) -> None:
    accepted: list[int] = []
    with Platform.open(home) as platform:
        producer = platform.producer("web")
        start = threading.Barrier(8)

        def send(thread: int) -> None:
            start.wait()
            accepted.extend(producer.write([signal(f"{thread}-{write}")]).wait().accepted for write in range(40))

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.write([signal("after")]).wait()
    assert accepted == [1] * 320
    assert sorted(stored(home)) == sorted(
        ["after", *(f"{thread}-{write}" for thread in range(8) for write in range(40))]
    )


class Raises(dict[str, Any]):
    """A mapping whose values cannot be read."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError(name)

    def items(self) -> Any:
        raise RuntimeError("items")

    def get(self, name: str, default: Any = None) -> Any:
        raise RuntimeError(name)


def contains_itself() -> dict[str, Any]:
    found: dict[str, Any] = signal("itself")
    found["signal"] = found
    return found


POISON = [
    {b"namespace": "shop"},
    contains_itself(),
    Raises(namespace="shop"),
    {**signal("huge"), "event_ts": 10**30},
    {**signal("deep"), "signal": [[[[[[]]]]]]},
    {**signal("object"), "signal": object()},
    {**signal("surrogate"), "namespace": "\ud800"},
    [1, 2],
    3.5,
    None,
]


@pytest.mark.parametrize("poison", POISON, ids=[str(number) for number in range(len(POISON))])
def test_a_poisoned_delta_is_refused_and_stops_nobody_c14(home: Home, poison: Any) -> None:
    with Platform.open(home) as platform:
        producer = platform.producer("web")
        receipt = producer.write([signal("before"), poison, signal("after")]).wait()
        assert (receipt.accepted, receipt.refused) == (2, 1)
        assert producer.write([signal("next")]).wait().accepted == 1


def test_a_time_beyond_the_year_9999_in_columns_is_refused_and_stops_nobody_c14(home: Home) -> None:
    far = 300_000_000_000_000_000
    columns = pa.table(
        {
            "namespace": ["shop"] * 2,
            "kind": ["signal"] * 2,
            "delta_id": ["far", "near"],
            "event_ts": pa.array([far, TEN_O_CLOCK], pa.timestamp("us", tz="UTC")),
            "signal": [{"entity_id": "e", "signal": "view", "count": 1, "weight_millionths": 0}] * 2,
        }
    )
    with Platform.open(home) as platform:
        producer = platform.producer("web")
        receipt = producer.write(columns).wait()
        assert (receipt.accepted, receipt.refused) == (1, 1)
        assert producer.write([signal("next")]).wait().accepted == 1


def test_refused_rows_keep_no_more_than_is_useful_and_the_home_opens_again_c14(home: Home) -> None:
    vector = {"vector_id": "v", "op": "no_such_operation", "values": [1 / 3] * 2_000}
    rows = 400
    columns = pa.table(
        {
            "namespace": ["shop"] * rows,
            "kind": ["vector"] * rows,
            "delta_id": [str(row) for row in range(rows)],
            "event_ts": pa.array([TEN_O_CLOCK] * rows, pa.timestamp("us", tz="UTC")),
            "vector": [vector] * rows,
        }
    )
    with Platform.open(home) as platform:
        assert platform.producer("web").write(columns).wait().refused == rows
    kept, lengths = stored(home, "raw"), stored(home, "raw_bytes")
    assert sum(map(len, kept)) < 2 * 1024 * 1024
    assert len(kept[0]) == 16 * 1024
    assert min(map(len, kept)) == 256
    assert lengths[0] > 16 * 1024
    assert min(lengths) > 256  # of those beyond the budget no more is rendered than shows that they were longer


def test_a_group_that_no_frame_could_hold_is_logged_in_several_c14(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 1024 * 1024 + 30_000
    for module in (core, flusher, frames, log):
        monkeypatch.setattr(module, "PAYLOAD_LIMIT", limit)
    with Platform.open(home) as platform:
        producer = platform.producer("web")
        with platform.shards[0]._lock:  # so that all of them are one group
            handles = [producer.write([signal(f"{write}-{row}") for row in range(5)]) for write in range(4)]
        assert [handle.wait().accepted for handle in handles] == [5] * 4
        with pytest.raises(WriteTooLargeError, match="several writes"):
            producer.write([signal(f"large-{row}") for row in range(40)])
        assert producer.write([signal("next")]).wait().accepted == 1
    assert len(stored(home)) == 21


def test_watermarks_of_a_home_with_one_shard_move_t2(home: Home) -> None:
    with Platform.open(home) as platform:
        platform.producer("web").write([signal("first")]).wait()
        first = platform.watermarks()
        platform.producer("web").write([signal("second", at=TEN_O_CLOCK + 60_000_000)]).wait()
        platform.producer("web").write([signal("third", at=TEN_O_CLOCK + 60_000_000)]).wait()
        assert platform.watermarks()["shop/signal"] > first.get("shop/signal", 0)


@pytest.mark.parametrize("name", ["a\n", "A", "", "a b", "a" * 64, "1a", "ä"])
def test_no_other_text_is_a_name(home: Home, name: str) -> None:
    assert not is_name(name)
    with Platform.open(home) as platform, pytest.raises(WriteFormatError):
        platform.producer(name)
