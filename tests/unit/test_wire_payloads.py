"""What is in frames (W2, W3): compression within bounds, messages of any age, and everything else in words."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests.support.raw_frames import zstd, zstd_of_one_byte
from tidemark.wire import messages
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.limits import LIMITS, Limits
from tidemark.wire.messages import (
    Ack,
    Backpressure,
    DeliveryHead,
    Heartbeat,
    Hello,
    Nack,
    Subscribe,
    Subscribed,
    Topic,
    Welcome,
    decode,
    encode,
)
from tidemark.wire.payloads import as_json_lines, compress, decompress, json_lines

KINDS: tuple[type[Struct], ...] = (
    Ack,
    Backpressure,
    DeliveryHead,
    Heartbeat,
    Hello,
    Nack,
    Subscribe,
    Subscribed,
    Welcome,
)
SMALL = Limits(payload_bytes=4096, unpacked_bytes=100_000, rows=10)


def reason_of(call: Callable[[], object]) -> NackReason:
    with pytest.raises(PayloadError) as refused:
        call()
    assert str(refused.value).endswith("."), "a refusal is a sentence"
    return refused.value.reason


# Compression.


@given(st.binary(min_size=1, max_size=5_000))
def test_w2_what_is_compressed_is_what_was_sent(content: bytes) -> None:
    assert decompress(compress(content), LIMITS) == content
    assert decompress(memoryview(compress(content)), LIMITS) == content
    assert decompress(zstd(content), LIMITS) == content


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"no zstd at all", id="something_else"),
        pytest.param(compress(b"")[:6], id="cut_in_its_header"),
        pytest.param(compress(b"hello" * 50)[:-3], id="cut_in_its_content"),
        pytest.param(zstandard.ZstdCompressor(write_content_size=False).compress(b"hello"), id="size_not_stated"),
        pytest.param(compress(b""), id="empty"),
        pytest.param(compress(b"") + b"more", id="empty_and_more"),
        pytest.param(compress(b"hello") + b"more", id="more_behind_it"),
        pytest.param(compress(b"hello") + compress(b"hello"), id="two_frames"),
        pytest.param(compress(b"hello") * 1_000, id="many_frames"),
        pytest.param(b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + compress(b"hello"), id="a_skippable_frame_before_it"),
        pytest.param(zstd(b"hello", 4), id="more_than_it_states"),
        pytest.param(zstd(b"hello", 6), id="less_than_it_states"),
        pytest.param(zstd(b"hello", SMALL.unpacked_bytes + 1), id="states_too_much"),
        pytest.param(zstd(b"hello", 2**32 - 1), id="states_four_gigabytes"),
        pytest.param(zstd_of_one_byte(90_000), id="ratio"),
    ],
)
def test_w3_a_bad_zstd_frame_is_refused_before_memory_is_taken_for_its_content(payload: bytes) -> None:
    tracemalloc.start()
    try:
        assert reason_of(lambda: decompress(payload, SMALL)) is NackReason.BAD_COMPRESSION
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(0, 7))
def test_w3_damaged_compression_is_the_content_or_a_refusal(content: bytes, place: int, bit: int) -> None:
    payload = bytearray(compress(content + b"0123456789" * 20))
    payload[place % len(payload)] ^= 1 << bit
    try:
        assert len(decompress(bytes(payload), SMALL)) <= SMALL.unpacked_bytes
    except PayloadError as refused:
        reason = refused.reason
    else:
        reason = NackReason.BAD_COMPRESSION
    assert reason is NackReason.BAD_COMPRESSION


def test_w3_what_unpacks_to_exactly_the_limits_is_taken() -> None:
    assert len(decompress(zstd(b"x" * 1_000, None), Limits(unpacked_bytes=1_000, ratio=1))) == 1_000
    assert reason_of(lambda: decompress(zstd(b"x" * 1_000), Limits(unpacked_bytes=999))) is NackReason.BAD_COMPRESSION


# JSON lines.


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers()), max_size=10))
def test_w2_lines_are_the_deltas_that_were_sent(deltas: list[dict[str, int]]) -> None:
    lines = [json.dumps(delta).encode() for delta in deltas]
    assert json_lines(as_json_lines(lines), LIMITS) == lines
    assert json_lines(memoryview(b"\n\r\n".join(lines) + b"\n"), LIMITS) == lines


def test_w3_more_lines_than_a_write_may_have_are_refused_before_they_are_cut() -> None:
    assert len(json_lines(b"{}\n" * SMALL.rows, SMALL)) == SMALL.rows
    payload = b"\n" * 2_000_000
    tracemalloc.start()
    try:
        assert reason_of(lambda: json_lines(memoryview(payload), LIMITS)) is NackReason.TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < len(payload) + 100_000
    finally:
        tracemalloc.stop()


# Messages.

NAMES = st.text(max_size=10)
NUMBERS = st.integers(0, 2**63 - 1)
MESSAGES = st.one_of(
    st.builds(Hello, token=st.none() | NAMES, producer=st.none() | NAMES, instance=NUMBERS, client=NAMES),
    st.builds(Subscribe, topics=st.lists(st.builds(Topic, NAMES), max_size=3).map(tuple), name=st.none() | NAMES),
    st.builds(Subscribe, cursor=st.none() | st.dictionaries(NUMBERS, NUMBERS, max_size=3)),
    st.builds(Nack, st.sampled_from(NackReason), NAMES, expected=st.none() | NUMBERS, closes=st.booleans()),
    st.builds(Ack, st.sampled_from(messages.LevelName), st.dictionaries(NUMBERS, NUMBERS, max_size=3)),
    st.builds(Backpressure, NUMBERS, NAMES, rate=st.none() | st.floats(0, 1e9)),
    st.builds(Heartbeat, st.none() | NUMBERS),
    st.builds(DeliveryHead, st.dictionaries(NUMBERS, NUMBERS, max_size=3), NUMBERS),
)


@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: Struct) -> None:
    assert decode(encode(message), type(message)) == message
    assert decode(memoryview(encode(message)), type(message)) == message


@given(MESSAGES, st.dictionaries(NAMES.map("later_{}".format), st.integers() | NAMES | st.lists(NAMES), max_size=3))
def test_w5_fields_of_later_versions_are_ignored(message: Struct, more: dict[str, Any]) -> None:
    later = {**json.loads(encode(message)), **more}
    assert decode(json.dumps(later).encode(), type(message)) == message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{} {}",
        b'"text"',
        b'{"level": 7, "role": 7, "cursor": 7, "window": "x", "mark": 1.5, "reason": [], "drain_ms": "soon"}',
        b'{"level":"\xff", "role":"\xff", "cursor":"\xff", "window":"\xff", "reason":"\xff", "drain_ms":"\xff"}',
        b"[" * 30_000,
        b'{"a":' * 10_000,
        b'{"drain_ms":1e999, "instance":1e999, "window":1e999, "max_unacked":1e999, "x":' + b"[" * 5_000 + b"}",
    ],
)
def test_w3_what_is_no_message_of_a_kind_is_refused_in_words(kind: type[Struct], payload: bytes) -> None:
    assert reason_of(lambda: decode(payload, kind)) is NackReason.BAD_PAYLOAD


def test_w3_a_message_larger_than_messages_are_is_refused_unread() -> None:
    payload = b" " * (LIMITS.message_bytes - 2) + b"{}"
    assert decode(payload, Hello) == Hello()
    assert reason_of(lambda: decode(b" " + payload, Hello)) is NackReason.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize("number", [-1, 2**63, 10**40, 0.5, "1"])
def test_w3_a_number_that_no_shard_epoch_or_instance_can_have_is_refused(number: object) -> None:
    for kind, says in ((Hello, {"instance": number}), (Hello, {"shard": number}), (Subscribe, {"cursor": {0: number}})):
        payload = json.dumps(says).encode()
        assert reason_of(lambda payload=payload, kind=kind: decode(payload, kind)) is NackReason.BAD_PAYLOAD  # type: ignore[misc]


@given(st.binary(max_size=100), st.sampled_from(KINDS))
def test_w3_any_bytes_are_a_message_or_a_refusal(payload: bytes, kind: type[Struct]) -> None:
    try:
        decode(payload, kind)
    except PayloadError as refused:
        assert refused.reason is NackReason.BAD_PAYLOAD  # noqa: PT017 - both ways are looked at


def test_w10_a_hello_that_is_shown_does_not_show_its_token() -> None:
    assert "secret" not in repr(Hello(token="secret"))  # noqa: S106 - it is none
