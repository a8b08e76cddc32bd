"""A delta that is wrong by itself is refused with a reason and holds nobody up (D1, D4, D6, D7, D9, Q3)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, HandClock, new_home, open_platform, sample, sealed_rows, signal, vector
from tidemark import Delta, Reason, Signal
from tidemark.door.decode import Sent, decode
from tidemark.event_time.watermarks import Watermarks
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import RAW_LIMIT
from tidemark.model.settings import Namespace, Settings
from tidemark.model.timegrid import DAY_US, SECOND_US
from tidemark.verdicts.arrival import Arrivals, NumberedWrite
from tidemark.verdicts.identities import Identities

SETTINGS = Settings(namespaces={"shop": Namespace(dimension=4)})


def arrivals(settings: Settings = SETTINGS) -> Arrivals:
    return Arrivals(0, settings, Watermarks(settings), Identities(settings.recent_identities))


def decide(*deltas: Sent, settings: Settings = SETTINGS) -> list[dict[str, Any]]:
    decided, _ = arrivals(settings).decide([NumberedWrite(1, "web", 1, TEN_O_CLOCK, list(deltas))])
    rows: list[dict[str, Any]] = decided.batch().to_pylist()
    return rows


def without(delta: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in delta.items() if key != name}


WRONG: list[tuple[Sent, Reason]] = [
    (b"{", Reason.MALFORMED),
    (b"", Reason.MALFORMED),
    (b"[1, 2]", Reason.MALFORMED),
    (b"null", Reason.MALFORMED),
    (b"\xff\xfe\x00", Reason.MALFORMED),
    (b'{"namespace": "\\ud800"}', Reason.MALFORMED),
    (b"[" * 100_000, Reason.MALFORMED),
    ({"namespace": {}}, Reason.WRONG_TYPE),
    (without(signal("a"), "delta_id"), Reason.MISSING_FIELD),
    (signal("a", extra=1), Reason.UNKNOWN_FIELD),
    ({**signal("a"), "delta_id": 7}, Reason.WRONG_TYPE),
    (signal("a", signal={"entity_id": "e", "signal": "view", "count": "3"}), Reason.WRONG_TYPE),
    (signal("a", signal={"entity_id": "e", "signal": "view", "count": 1.5}), Reason.WRONG_TYPE),
    (signal("a", priority="urgent"), Reason.WRONG_TYPE),
    (signal("a", kind="metric"), Reason.UNKNOWN_KIND),
    (signal("a", kind=""), Reason.UNKNOWN_KIND),
    (signal("a", signal=None), Reason.PAYLOAD_MISMATCH),
    (signal("a", vector={"vector_id": "v", "op": "delete"}), Reason.PAYLOAD_MISMATCH),
    (signal("a", kind="vector"), Reason.PAYLOAD_MISMATCH),
    (signal(""), Reason.EMPTY_ID),
    (signal("  "), Reason.EMPTY_ID),
    (signal("a", entity=""), Reason.EMPTY_ID),
    (signal("x" * 257), Reason.BAD_ID),
    (signal("a\nb"), Reason.BAD_ID),
    (signal("a", namespace="it's"), Reason.BAD_NAME),
    (signal("a", namespace="a/b"), Reason.BAD_NAME),
    (signal("a", namespace="Shop"), Reason.BAD_NAME),
    (signal("a", namespace="shop\n"), Reason.BAD_NAME),
    (signal("a", namespace="x" * 64), Reason.BAD_NAME),
    (signal("a", origin="../x"), Reason.BAD_NAME),
    (signal("a", signal={"entity_id": "e", "signal": 'vi"ew'}), Reason.BAD_NAME),
    (signal("a", event_ts="9999-12-31T23:59:59Z"), Reason.FROM_THE_FUTURE),
    (signal("a", event_ts="2099-01-01T00:00:00Z"), Reason.FROM_THE_FUTURE),
    (signal("a", event_ts="2024-12-29T23:59:59.999999Z"), Reason.TOO_OLD),
    (signal("a", event_ts="0001-01-01T00:00:00+14:00"), Reason.BAD_TIMESTAMP),
    (signal("a", event_ts="10000-01-01"), Reason.BAD_TIMESTAMP),
    (signal("a", event_ts="yesterday"), Reason.BAD_TIMESTAMP),
    (signal("a", event_ts=2**80), Reason.BAD_TIMESTAMP),
    (signal("a", event_ts=True), Reason.BAD_TIMESTAMP),
    (signal("a", event_ts=None), Reason.BAD_TIMESTAMP),
    (signal("a", count=2**63), Reason.OUT_OF_RANGE),
    (signal("a", count=10**12 + 1), Reason.OUT_OF_RANGE),
    (signal("a", count=-(10**12) - 1), Reason.OUT_OF_RANGE),
    (signal("a", signal={"entity_id": "e", "signal": "view", "weight": float("nan")}), Reason.NOT_FINITE),
    (signal("a", signal={"entity_id": "e", "signal": "view", "weight": 1e300}), Reason.OUT_OF_RANGE),
    (sample("a", float("nan")), Reason.NOT_FINITE),
    (json.dumps(sample("a", float("inf"))).encode(), Reason.NOT_FINITE),
    ({**sample("a", 1.0), "sample": {"labels": {}, "value": 1.0}}, Reason.NO_LABELS),
    ({**sample("a", 1.0), "sample": {"labels": {"": "x"}, "value": 1.0}}, Reason.BAD_ID),
    ({**sample("a", 1.0), "sample": {"labels": {f"l{at}": "x" for at in range(65)}, "value": 1.0}}, Reason.TOO_LARGE),
    (vector("a", "rotate"), Reason.UNKNOWN_OPERATION),
    (vector("a", "create", values=[1.0, 2.0]), Reason.WRONG_DIMENSION),
    (vector("a", "create", values=[]), Reason.WRONG_DIMENSION),
    (vector("a", "create", values=[1.0, 2.0, 3.0, float("-inf")]), Reason.NOT_FINITE),
    (vector("a", "create", values=[1.0, 2.0, 3.0, 1e39]), Reason.NOT_FINITE),
    (vector("a", "create"), Reason.PAYLOAD_MISMATCH),
    (vector("a", "scale", factor=2.0, values=[1.0]), Reason.PAYLOAD_MISMATCH),
    (vector("a", "set_dims", values=[1.0], indices=[4]), Reason.INDEX_OUT_OF_RANGE),
    (vector("a", "set_dims", values=[1.0], indices=[-1]), Reason.INDEX_OUT_OF_RANGE),
    (vector("a", "set_dims", values=[1.0], indices=[2**40]), Reason.INDEX_OUT_OF_RANGE),
    (vector("a", "add_dims", values=[1.0, 2.0], indices=[1]), Reason.WRONG_DIMENSION),
    (vector("a", "add_dims", values=[1.0, 2.0], indices=[1, 1]), Reason.REPEATED_INDEX),
    (vector("a", "add_dims", values=[None], indices=[1]), Reason.WRONG_TYPE),
    (vector("a", "scale", factor=float("nan")), Reason.NOT_FINITE),
    (vector("a", "delete", parent_id="a"), Reason.SELF_PARENT),
    (vector("a", "delete", clock={"n": -1}), Reason.OUT_OF_RANGE),
    (b'{"namespace": "' + b"x" * (4 * 1024 * 1024) + b'"}', Reason.TOO_LARGE),
]

RIGHT: list[Sent] = [
    signal("a"),
    signal("a", event_ts=TEN_O_CLOCK + 300 * SECOND_US),
    signal("a", event_ts="2024-12-30T00:00:00Z"),
    signal("a", event_ts="2026-03-02"),
    signal("a", event_ts="2026-03-02 10:00:00+02:00"),
    signal("a", count=-5),
    signal("Ä/ö 'quoted' id", entity="日本"),
    Delta("shop", "signal", "a", datetime(2026, 3, 2, tzinfo=UTC), signal=Signal("item-1", "view", weight=0.1)),
    sample("a", -0.0, host="a", zone="b"),
    vector("a", "create", values=[1, 2, 3, 4]),
    vector("a", "replace", values=[1.5, 2, 3, 4], metadata={"model": "m1", "old": None}),
    vector("a", "set_dims", values=[1.0, 2.0], indices=[3, 0]),
    vector("a", "add_dims", values=[1.0], indices=[3], parent_id="b", clock={"n1": 3}),
    vector("a", "scale", factor=0.5),
    vector("a", "offset", amount=-1.0),
    vector("a", "delete"),
]


@pytest.mark.parametrize(
    ("wrong", "reason"), WRONG, ids=[f"{reason}-{number}" for number, (_, reason) in enumerate(WRONG)]
)
def test_a_wrong_delta_is_refused_with_its_reason_and_holds_nobody_up(wrong: Sent, reason: Reason) -> None:
    before, refused, after = decide(signal("before"), wrong, signal("after"))
    assert (before["verdict"], refused["verdict"], after["verdict"]) == ("accepted", "refused", "accepted")
    assert refused["reason"] == reason
    assert refused["detail"].endswith((".", "…."))
    assert len(refused["raw"]) == min(refused["raw_bytes"], RAW_LIMIT)
    assert refused["identity_hash"] is None


@pytest.mark.parametrize("right", RIGHT, ids=str)
def test_a_right_delta_is_accepted(right: Sent) -> None:
    (row,) = decide(right)
    assert (row["verdict"], row["reason"], row["raw"]) == ("accepted", None, None)


def test_the_original_bytes_are_kept_as_they_came() -> None:
    line = b'{ "namespace" : "shop",  "kind":"nonsense" }'
    (row,) = decide(line)
    assert row["raw"] == line


def test_a_weight_keeps_six_decimals_exactly() -> None:
    weights = [0.1, 0.123456, 2.5e-7, 7.5e-7, -1.000001, 999_999.999999]
    rows = decide(
        *(
            signal(str(at), signal={"entity_id": "e", "signal": "view", "weight": weight})
            for at, weight in enumerate(weights)
        )
    )
    assert [row["signal"]["weight_millionths"] for row in rows] == [100_000, 123_456, 0, 1, -1_000_001, 999_999_999_999]


def test_a_namespace_without_a_declared_dimension_takes_vectors_of_any_length() -> None:
    delta = {**vector("a", "create", values=[1.0] * 9), "namespace": "other"}
    assert decide(delta)[0]["verdict"] == "accepted"


def test_two_label_sets_under_one_fingerprint_are_an_error_and_never_one_series() -> None:
    series = SeriesNames(fingerprint=lambda labels: "same")
    decoded = decode([sample("a", 1.0, host="x"), sample("b", 1.0, host="y"), sample("c", 1.0, host="x")], series)
    assert {row: refusal.reason for row, refusal in decoded.refusals.items()} == {1: Reason.FINGERPRINT_COLLISION}


def test_the_order_of_labels_does_not_matter() -> None:
    first, second = decide(sample("a", 1.0, host="x", zone="z"), sample("b", 1.0, zone="z", host="x"))
    assert first["key"] == second["key"]


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
fields = ["namespace", "kind", "delta_id", "event_ts", "priority", "source", "origin", "vector", "sample", "signal"]


@given(
    st.dictionaries(st.sampled_from(fields), json_values),
    st.sampled_from([signal("a"), sample("a", 1.0), vector("a", "scale", factor=1.0)]),
    st.booleans(),
)
def test_nothing_that_json_can_say_stops_the_shard(
    changes: dict[str, Any], base: dict[str, Any], as_text: bool
) -> None:
    delta = {**base, **changes}
    rows = decide(json.dumps(delta).encode() if as_text else delta, signal("neighbour"))
    assert rows[0]["verdict"] in {"accepted", "refused"}
    assert rows[1]["verdict"] in {"accepted", "duplicate"}


@given(st.binary(max_size=60))
def test_no_bytes_stop_the_shard(data: bytes) -> None:
    assert decide(data)[0]["verdict"] == "refused"


def test_columns_get_the_same_verdicts_as_objects() -> None:
    objects = [
        signal("a"),
        signal(""),
        vector("b", "create", values=[1.0] * 4),
        sample("c", 2.0, host="x"),
        vector("d", "scale"),
    ]
    by_object = decide(*objects)
    columns = decode(objects, SeriesNames()).columns
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in fields})
    by_column, _ = arrivals().decide([NumberedWrite(1, "web", 1, TEN_O_CLOCK, batch)])
    compared = [name for name in by_object[0] if name not in {"raw", "raw_bytes"}]
    assert by_column.batch().select(compared).to_pylist() == [
        {name: row[name] for name in compared} for row in by_object
    ]


def test_one_row_from_2099_makes_no_honest_row_late(tmp_path: Path) -> None:
    clock = HandClock()
    home = new_home(tmp_path)
    with open_platform(home, clock) as platform:
        producer = platform.producer("web")
        producer.write([signal("a", event_ts="2099-01-01T00:00:00Z"), signal("b", at=clock.now_us)]).wait()
        clock.advance(1)
        producer.write([signal("c", at=clock.now_us)]).wait()
    stamp = sealed_rows(home)[-1]["watermark_ts"]
    assert stamp == datetime(2026, 3, 2, 9, 59, 55, tzinfo=UTC)


def test_events_up_to_the_skew_are_accepted_and_no_further() -> None:
    edge = TEN_O_CLOCK + SETTINGS.clock_skew_ms * 1_000
    rows = decide(signal("a", at=edge), signal("b", at=edge + 1), signal("c", at=TEN_O_CLOCK - 30 * DAY_US))
    assert [row["reason"] for row in rows] == [None, "from_the_future", None]
    assert np.array_equal([row["ordinal"] for row in rows], [0, 1, 2])
