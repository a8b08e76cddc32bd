"""Frames (W1, W3, W9): the golden bytes both ways, any pieces, every truncation and every flipped bit."""

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import golden_frames as golden
from tests.support.raw_frames import raw
from tidemark.gateway.w1.write_frames import read_write
from tidemark.wire import messages
from tidemark.wire.errors import FrameError, NackReason, PayloadError
from tidemark.wire.frames import CHECKSUM_BYTES, HEADER_BYTES, Flag, Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.limits import LIMITS

FILE = json.loads(golden.PATH.read_text())
GOOD: dict[str, Any] = {each["name"]: each for each in FILE["good"]}
BAD: dict[str, Any] = {each["name"]: each for each in FILE["bad"]}


def read(data: bytes) -> list[Frame]:
    """The frames of these bytes, each with a payload of its own."""
    return [frame._replace(payload=bytes(frame.payload)) for frame in FrameReader().feed(data)]


def refusal(data: bytes) -> tuple[NackReason | None, list[Frame]]:
    """The word for these bytes, or the frames in them."""
    try:
        return None, read(data)
    except FrameError as error:
        return error.reason, []


def take(frame: Frame, message: str | None) -> object:
    """What a frame says, as this kind of message or as a write."""
    return messages.decode(frame.payload, getattr(messages, message)) if message else read_write(frame, LIMITS)


# Golden bytes.


def test_w9_the_golden_file_is_what_the_code_makes() -> None:
    found = golden.document()
    for made, kept in zip(found["good"], FILE["good"], strict=True):
        if kept.get("is_arrow"):  # another version of Arrow may write other bytes
            made["hex"], made["payload_bytes"] = kept["hex"], kept["payload_bytes"]
    assert golden.as_text(found) == golden.PATH.read_text(), "python -m tests.support.golden_frames writes it anew"


def test_w9_the_checksum_is_castagnoli_s() -> None:
    for each in FILE["crc32c"]:
        assert f"{google_crc32c.value(bytes.fromhex(each['hex'])):08x}" == each["value"]


@pytest.mark.parametrize("name", GOOD)
def test_w9_a_golden_frame_is_read_as_the_file_says_and_written_back(name: str) -> None:
    said = GOOD[name]
    data = bytes.fromhex(said["hex"])
    [frame] = read(data)
    assert (frame.type, frame.flags, frame.sequence) == (said["type"], said["flags"], said["sequence"])
    assert golden.flag_names(frame.flags) == said["flag_names"]
    assert len(frame.payload) == said["payload_bytes"]
    assert encode_frame(frame) == data


@pytest.mark.parametrize("name", [name for name, said in GOOD.items() if "message" in said])
def test_w9_a_golden_message_is_read_as_the_file_says(name: str) -> None:
    said = GOOD[name]
    [frame] = read(bytes.fromhex(said["hex"]))
    head, *_ = bytes(frame.payload).split(b"\n")
    message = messages.decode(head, getattr(messages, said["message"]))
    known = {key: value for key, value in said["says"].items() if key in message.__struct_fields__}
    again = json.loads(messages.encode(message))
    assert {key: again[key] for key in known if key in again} == {key: known[key] for key in known if key in again}
    assert all(known[key] == getattr(type(message)(), key) for key in known if key not in again)


@pytest.mark.parametrize("name", [name for name, said in GOOD.items() if "deltas" in said and "message" not in said])
def test_w9_golden_writes_hold_the_deltas_of_the_file(name: str) -> None:
    [frame] = read(bytes.fromhex(GOOD[name]["hex"]))
    content = read_write(frame, LIMITS)
    if isinstance(content, pa.RecordBatch):
        found = [{**row, "event_ts": row["event_ts"].strftime("%Y-%m-%dT%H:%M:%SZ")} for row in content.to_pylist()]
    else:
        found = [json.loads(line) for line in content]  # type: ignore[arg-type]
    assert found == GOOD[name]["deltas"]


@pytest.mark.parametrize("name", BAD)
def test_w9_a_bad_golden_frame_is_refused_with_the_word_of_the_file(name: str) -> None:
    said = BAD[name]
    data = bytes.fromhex(said["hex"])
    if said["ends_the_connection"]:
        with pytest.raises(FrameError) as refused_frame:
            read(data)
        assert refused_frame.value.reason == said["reason"]
        return
    [frame] = read(data)
    with pytest.raises(PayloadError) as refused:
        take(frame, said.get("message"))
    assert refused.value.reason == said["reason"]


# Round trips, and pieces.

FLAGS = st.integers(0, 15).map(Flag)
FRAMES = st.builds(
    lambda kind, flags, sequence, payload: Frame(
        kind, flags | Flag.BATCHED if kind is FrameType.BATCH else flags, sequence, payload
    ),
    st.sampled_from(FrameType),
    FLAGS,
    st.integers(0, 2**64 - 1),
    st.one_of(st.binary(max_size=200), st.integers(0, 120_000).map(bytes)),
)


@given(st.lists(FRAMES, max_size=5), st.data())
def test_w1_frames_that_arrive_in_any_pieces_are_the_frames_that_were_sent(frames: list[Frame], data: Any) -> None:
    stream = b"".join(map(encode_frame, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader, found = FrameReader(), list[Frame]()
    for start, end in pairwise((0, *cuts, len(stream))):
        found += [frame._replace(payload=bytes(frame.payload)) for frame in reader.feed(stream[start:end])]
    assert found == frames
    assert reader.is_between_frames


def test_w1_all_golden_frames_are_read_byte_by_byte() -> None:
    stream = b"".join(bytes.fromhex(said["hex"]) for said in GOOD.values())
    reader, found = FrameReader(), list[bytes]()
    for place in range(len(stream)):
        found += [encode_frame(frame) for frame in reader.feed(stream[place : place + 1])]
    assert [each.hex() for each in found] == [said["hex"] for said in GOOD.values()]


def test_w1_frames_of_every_size_follow_each_other_in_one_reader() -> None:
    reader = FrameReader()
    for size in (0, 40_000, 10, 2_000_000, 100, 5_000_000, 5_000_000, 1, 32_768 - 20, 32_768):
        frame = Frame(FrameType.DELTA, Flag.NONE, size, bytes(size))
        stream = encode_frame(frame)
        found = [each for at in range(0, len(stream), 65_536) for each in reader.feed(stream[at : at + 65_536])]
        assert [(each.sequence, len(each.payload)) for each in found] == [(size, size)]


# Damage.


@pytest.mark.parametrize("name", GOOD)
def test_w3_every_beginning_of_a_golden_frame_is_incomplete(name: str) -> None:
    data = bytes.fromhex(GOOD[name]["hex"])
    for size in range(len(data)):
        reader = FrameReader()
        assert list(reader.feed(data[:size])) == []
        assert reader.is_between_frames == (size == 0)


def words(place: int, bit: int, frame: Frame) -> set[NackReason]:
    """What a flipped bit may be called; an empty set if the frame is then only incomplete."""
    kind = frame.type ^ (1 << bit) if place == 2 else frame.type
    flags = frame.flags ^ (1 << bit) if place == 3 else frame.flags
    stated = len(frame.payload)
    if 12 <= place < HEADER_BYTES:
        stated ^= 1 << (bit + 8 * (HEADER_BYTES - 1 - place))
    wrong = {
        NackReason.BAD_MAGIC: place == 0,
        NackReason.BAD_VERSION: place == 1,
        NackReason.BAD_TYPE: kind > max(FrameType),
        NackReason.BAD_FLAGS: flags > 15 or (kind == FrameType.BATCH and not flags & Flag.BATCHED),
        NackReason.PAYLOAD_TOO_LARGE: stated > LIMITS.payload_bytes,
    }
    if found := {reason for reason, is_so in wrong.items() if is_so}:
        return found
    return set() if stated > len(frame.payload) else {NackReason.BAD_CHECKSUM}


@pytest.mark.parametrize("name", GOOD)
def test_w1_every_flipped_bit_of_a_golden_frame_is_refused_with_its_word(name: str) -> None:
    data = bytes.fromhex(GOOD[name]["hex"])
    [frame] = read(data)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            reason, found = refusal(bytes(flipped))
            assert ({reason} - {None}, found) == (words(place, bit, frame), []), (place, bit)


@given(st.binary(max_size=300))
def test_w3_any_bytes_are_frames_or_a_frame_error(data: bytes) -> None:
    _, frames = refusal(data)
    assert sum(HEADER_BYTES + len(frame.payload) + CHECKSUM_BYTES for frame in frames) <= len(data)


@given(st.binary(max_size=64), st.integers(0, 255), st.integers(0, 255))
def test_w1_with_a_right_checksum_only_known_types_and_flags_are_read(payload: bytes, kind: int, flags: int) -> None:
    data = raw(kind, flags, payload=payload)
    is_known = kind <= 7 and flags <= 15 and not (kind == 1 and not flags & 8)
    reason, frames = refusal(data)
    assert is_known == (reason is None) == (frames == [(kind, flags, 42, payload)])
    assert reason in {None, NackReason.BAD_TYPE, NackReason.BAD_FLAGS}


# Memory.


def grown(reader_count: int, each: bytes) -> int:
    """The memory that so many readers take after these bytes."""
    tracemalloc.start()
    try:
        readers = [FrameReader() for _ in range(reader_count)]
        for reader in readers:
            list(reader.feed(each))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_w3_a_length_that_is_stated_takes_no_memory() -> None:
    header = raw(length=LIMITS.payload_bytes, payload=b"")[:HEADER_BYTES]
    assert grown(1, header + b"x" * 100) < 100_000


def test_w3_memory_grows_with_what_has_arrived() -> None:
    header = raw(length=LIMITS.payload_bytes, payload=b"")[:HEADER_BYTES]
    assert grown(1, header + bytes(1_000_000)) < 8_000_000


def test_w3_thousands_of_idle_connections_take_little() -> None:
    hello = bytes.fromhex(GOOD["hello"]["hex"])
    assert grown(1_000, hello) < 40_000_000


def test_w3_a_large_frame_leaves_no_large_buffer_behind() -> None:
    large, small = (encode_frame(Frame(FrameType.DELTA, Flag.NONE, 1, bytes(size))) for size in (8_000_000, 10))
    reader = FrameReader()
    tracemalloc.start()
    try:
        for _ in range(2):
            list(reader.feed(large))
            list(reader.feed(small))
            list(reader.feed(small))
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
