"""Signals laid out field by field are what they are delta by delta."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, sample, signal, vector
from tidemark.coordinator.slots import slots_of
from tidemark.door import decode_rows as decoding
from tidemark.door.decode import decode, keys_of
from tidemark.door.decode_values import all_event_us, all_millionths, event_us, millionths_of
from tidemark.door.decoded import FEW_WORDS, DecodedBatch, RefusedError
from tidemark.model.fingerprint import SeriesNames

moments = st.one_of(
    st.integers(TEN_O_CLOCK - 10, TEN_O_CLOCK + 10),
    st.integers(-(2**64), 2**64),
    st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=2))])),
)
weights = st.one_of(
    st.floats(),
    st.floats(-10, 10),
    st.decimals(-1, 1, places=7).map(float),
    st.sampled_from([1e6, -1e6, 999_999.9999995, 5e-7, 1.5e-6]),
)


@given(st.lists(moments, min_size=1, max_size=5))
def test_many_moments_are_what_each_of_them_is_or_nothing(found: list[datetime | int]) -> None:
    try:
        expected = [event_us(moment) for moment in found]
    except RefusedError:
        assert all_event_us(found) is None
    else:
        together = all_event_us(found)
        assert together is not None
        assert together.tolist() == expected


@given(st.lists(weights, min_size=1, max_size=5))
def test_many_weights_are_what_each_of_them_is_or_nothing(found: list[float]) -> None:
    together = all_millionths(found)
    if together is not None:
        assert together.tolist() == [millionths_of(weight) for weight in found]


def test_usual_weights_are_clear_at_first_sight() -> None:
    assert all_millionths([0.0, 1.25, -3.000001, 999_999.5]) is not None


payloads = st.fixed_dictionaries(
    {"entity_id": st.sampled_from(["", "a", "ü"]), "signal": st.sampled_from(["view", "click"])},
    optional={
        "count": st.sampled_from([1, -1, 2**63 - 1, 2**63, -(2**63) - 1, 1.5]),
        "weight": st.one_of(st.floats(-10, 10), st.sampled_from([0, 1e13, 5e-7])),
    },
)
signals = st.fixed_dictionaries(
    {
        "namespace": st.sampled_from(["shop", "other"]),
        "kind": st.sampled_from(["signal", "signal", "signal", "sample", "nothing"]),
        "delta_id": st.sampled_from(["", "a", "ü"]),
        "event_ts": st.sampled_from([TEN_O_CLOCK, "2026-03-02T10:00:00Z", "2026-03-02T10:00:00", 2**62, "soon"]),
        "signal": payloads,
    },
    optional={"origin": st.sampled_from([None, "elsewhere"]), "priority": st.sampled_from(["high", "normal"])},
)
deltas: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.text(max_size=3).map(signal), signals, st.sampled_from([sample("a", 1.0), vector("a", "scale", factor=1.0)])
)


def _both_ways(sent: list[Any]) -> tuple[DecodedBatch, DecodedBatch]:
    quick = decode(sent, SeriesNames())
    with patch.object(decoding._Taken, "as_signals", return_value=None):
        return quick, decode(sent, SeriesNames())


@given(st.lists(deltas, max_size=5), st.booleans())
def test_signals_field_by_field_are_the_signals_delta_by_delta(found: list[dict[str, Any]], is_json: bool) -> None:
    sent = [json.dumps(delta, default=str).encode() for delta in found] if is_json else found
    quick, slow = _both_ways(sent)
    assert quick.refusals == slow.refusals
    assert {name: quick.words.get(name) for name in FEW_WORDS} == {name: slow.words.get(name) for name in FEW_WORDS}
    assert quick.columns.keys() == slow.columns.keys()
    for name, column in slow.columns.items():
        assert quick.columns[name].equals(column), name
        assert quick.columns[name].type == column.type


ODD = st.sampled_from([b"{", "[]", b"\xff", 7, None, {}, {"namespace": "shop"}, {**signal("a"), "more": 1}])


@settings(max_examples=200)
@given(st.lists(deltas | ODD, max_size=5), st.booleans())
def test_q3_the_keys_that_say_the_shard_of_a_delta_are_those_of_its_decoded_row(sent: list[Any], is_json: bool) -> None:
    if is_json:
        sent = [json.dumps(delta, default=str) if isinstance(delta, dict) else delta for delta in sent]
    columns, keys = decode(sent, SeriesNames()).columns, keys_of(sent, SeriesNames())
    for name, found in zip(("namespace", "key"), keys, strict=True):
        assert found.equals(columns[name]), name
    assert slots_of(*keys).tolist() == slots_of(columns["namespace"], columns["key"]).tolist()


def test_a_group_of_plain_signals_is_laid_out_field_by_field() -> None:
    with patch.object(decoding, "_row", side_effect=AssertionError("went through it one by one")):
        assert decode([json.dumps(signal(str(number))).encode() for number in range(3)], SeriesNames()).rows == 3
