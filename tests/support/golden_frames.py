"""The golden frames (W9): the bytes of every kind of frame, good and bad, with what they mean.

Belongs here: making `docs/protocol/golden.json`, from which producers in other languages are tested. Bytes are made
from the code once; a test holds the code to the file. To write it anew after a change to the protocol:

    .venv/bin/python -m tests.support.golden_frames
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import pyarrow as pa

from tests.support.golden_bad import Bad, bad
from tests.support.raw_frames import CLICK, VIEW, arrow, clicks, compact, zstd
from tidemark.gateway.w1.delivered import COLUMNS
from tidemark.model.deltas import Priority
from tidemark.wire import messages
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import Flag, Frame, FrameType, encode_frame
from tidemark.wire.messages import LevelName, Role, Topic

PATH = Path(__file__).resolve().parents[2] / "docs" / "protocol" / "golden.json"
TOKEN = "tdm_not-a-token"  # noqa: S105 - it opens nothing

_SLOTS = ((0, 512), (1, 512))


class Good(NamedTuple):
    """A frame, and what it says."""

    name: str
    meaning: str
    frame: Frame
    message: str = ""  # the kind of message that the payload is, if it is one
    deltas: list[dict[str, Any]] | None = None
    is_arrow: bool = False  # other writers of Arrow make other bytes of the same columns


def _said(name: str, meaning: str, kind: FrameType, sequence: int, message: Any, flags: Flag = Flag.NONE) -> Good:
    return Good(name, meaning, Frame(kind, flags, sequence, messages.encode(message)), type(message).__name__)


def _hellos() -> list[Good]:
    producer = messages.Hello(token=TOKEN, producer="tills", client="example 1.0")
    later = {"role": "producer", "producer": "tills", "a_field_of_later": {"deep": [1, 2]}}
    heart, said = FrameType.HEARTBEAT, _said
    return [
        said("hello", "The first frame of a producer: any shard, acknowledged when flushed.", heart, 0, producer),
        said(
            "hello_to_a_shard",
            "A producer that splits by shard itself, was instance 3 before, and wants to hear of two levels.",
            heart,
            0,
            messages.Hello(
                producer="tills",
                shard=1,
                instance=3,
                levels=(LevelName.APPLIED, LevelName.DURABLE),
                compressions=("zstd",),
                priority=Priority.HIGH,
            ),
        ),
        said("hello_of_a_subscriber", "The first frame of a subscriber.", heart, 0, messages.Hello(Role.SUBSCRIBER)),
        Good(
            "hello_of_later",
            "A field that is not known is ignored.",
            Frame(heart, Flag.NONE, 0, compact(later)),
            "Hello",
        ),
        said(
            "welcome",
            "The answer: instance 4, everything up to 41 is taken, 8 MiB may be under way, two shards.",
            heart,
            0,
            messages.Welcome(4, 41, 8 * 1024 * 1024, 2, _SLOTS, home="3f6c0a", server="tidemark 0.1.0"),
        ),
    ]


def _writes() -> list[Good]:
    lines = compact(CLICK) + b"\n" + compact(VIEW)
    both = [CLICK, VIEW]
    return [
        Good(
            "delta",
            "Write 42: one delta, and an acknowledgement is wanted.",
            Frame(FrameType.DELTA, Flag.WANTS_ACK, 42, compact(CLICK)),
            deltas=[CLICK],
        ),
        Good(
            "deltas_as_lines",
            "Write 43: JSON lines, before others of this connection's class.",
            Frame(FrameType.DELTA, Flag.BATCHED | Flag.PRIORITY, 43, lines),
            deltas=both,
        ),
        Good(
            "deltas_compressed",
            "Write 44: the same lines as one zstd frame that states its content's size.",
            Frame(FrameType.DELTA, Flag.BATCHED | Flag.COMPRESSED | Flag.WANTS_ACK, 44, zstd(lines)),
            deltas=both,
        ),
        Good(
            "deltas_in_columns",
            "Write 45: the same two as an Arrow IPC stream.",
            Frame(FrameType.BATCH, Flag.BATCHED | Flag.WANTS_ACK, 45, arrow(clicks())),
            deltas=both,
            is_arrow=True,
        ),
        Good(
            "largest_sequence",
            "Sequences have 64 bits without a sign.",
            Frame(FrameType.DELTA, Flag.NONE, 2**64 - 1, compact(CLICK)),
            deltas=[CLICK],
        ),
    ]


def _answers() -> list[Good]:
    ack, nack, said = FrameType.ACK, FrameType.NACK, _said
    return [
        said(
            "ack_flushed",
            "Everything up to 44 is on the disk. Of what this acknowledgement covers, write 43 had a duplicate, and "
            "write 44 a delta that was refused; each other write was accepted whole.",
            ack,
            44,
            messages.Ack(
                LevelName.FLUSHED,
                {0: 17, 1: 9},
                accepted=3,
                duplicate=1,
                refused=1,
                outcomes=(
                    messages.WriteOutcome(43, 1, 1, 0, duplicates=(1,)),
                    messages.WriteOutcome(44, 1, 0, 1),
                ),
                refusals=(messages.RefusedDelta(44, 1, "not_finite", "signal.weight is nan."),),
            ),
            Flag.BATCHED,
        ),
        said(
            "ack_of_a_retry",
            "Write 41 was taken earlier, at epoch 16; nothing was taken now.",
            ack,
            41,
            messages.Ack(LevelName.FLUSHED, {0: 16}, outcomes=(messages.WriteOutcome(41, 0, 0, 0, is_retry=True),)),
            Flag.BATCHED,
        ),
        said(
            "ack_durable",
            "Everything up to 44 is in a committed version of the lake.",
            ack,
            44,
            messages.Ack(LevelName.DURABLE, {0: 17, 1: 9}),
            Flag.BATCHED,
        ),
        said(
            "nack_gap",
            "Not final: 47 came before 46. Send from 46 on again.",
            nack,
            47,
            messages.Nack(NackReason.SEQUENCE_GAP, "The next number is 46.", expected=46),
        ),
        said(
            "nack_backpressure",
            "Not final: there is no room now. Send 46 and what followed it again, after 250 ms.",
            nack,
            46,
            messages.Nack(NackReason.BACKPRESSURE, "The shard is full.", retry_after_ms=250),
        ),
        said(
            "nack_final",
            "Final: number 46 is used up, and nothing of its write was taken. Go on with 47.",
            nack,
            46,
            messages.Nack(NackReason.BAD_PAYLOAD, "A write needs at least one delta.", is_final=True),
        ),
        said(
            "nack_fenced",
            "Another connection has opened the producer; this one ends.",
            nack,
            0,
            messages.Nack(NackReason.FENCED, "The producer was opened again.", closes=True),
        ),
    ]


def _flow() -> list[Good]:
    heart, said = FrameType.HEARTBEAT, _said
    return [
        said("heartbeat", "A sign of life.", heart, 1, messages.Heartbeat()),
        Good("heartbeat_without_payload", "As good a sign of life.", Frame(heart, Flag.NONE, 7)),
        said("goodbye", "Send nothing new here; for 2 s more there are answers.", heart, 2, messages.Heartbeat(2000)),
        said(
            "backpressure",
            "From now on 64 KiB may be under way, and a thousand deltas a second.",
            FrameType.BACKPRESSURE,
            0,
            messages.Backpressure(65_536, "The disk is slow.", 250, 1000.0),
        ),
    ]


def _subscriptions() -> list[Good]:
    row = {"shard": 0, "epoch": 17, "ordinal": 0, "producer": "tills", "sequence": 42, **CLICK}
    head = messages.DeliveryHead({0: 17, 1: 9}, 1)
    columns = {**clicks(), "shard": pa.array([0, 0], pa.int32()), "epoch": pa.array([17, 17])}
    said = _said
    return [
        said(
            "subscribe",
            "Clicks of the shop and everything about one key, under a durable name.",
            FrameType.SUBSCRIBE,
            1,
            messages.Subscribe((Topic("shop", "signal"), Topic("shop", key="v-9")), name="dashboard"),
        ),
        said(
            "subscribe_from_a_cursor",
            "All deltas above epoch 17 of shard 0, in columns. Shards that are not named: from the beginning.",
            FrameType.SUBSCRIBE,
            1,
            messages.Subscribe(cursor={0: 17}, form=messages.DeliveryForm.ARROW, max_unacked=4),
        ),
        said(
            "subscribed",
            "The answer: what comes after this is delivered.",
            FrameType.SUBSCRIBE,
            1,
            messages.Subscribed({0: 17, 1: 8}),
        ),
        Good(
            "delivery",
            "The first delivery: a line about it, then its deltas.",
            Frame(FrameType.DELTA, Flag.BATCHED, 1, messages.encode(head) + b"\n" + compact(row)),
            "DeliveryHead",
            deltas=[row],
        ),
        Good(
            "delivery_in_columns",
            "The second delivery, in columns; the line about it is in the schema's metadata as `tidemark`.",
            Frame(
                FrameType.BATCH,
                Flag.BATCHED,
                2,
                arrow(
                    {name: columns[name] for name in COLUMNS if name in columns},
                    {"tidemark": messages.encode(messages.DeliveryHead({0: 17, 1: 9}, 2))},
                ),
            ),
            is_arrow=True,
        ),
        Good("ack_of_deliveries", "Deliveries 1 and 2 are done.", Frame(FrameType.ACK, Flag.NONE, 2)),
        Good("unsubscribe", "The subscription ends.", Frame(FrameType.UNSUBSCRIBE, Flag.NONE, 1)),
    ]


def good() -> list[Good]:
    """Every kind of frame that is taken."""
    return [*_hellos(), *_writes(), *_answers(), *_flow(), *_subscriptions()]


def flag_names(flags: Flag) -> list[str]:
    """The flags of a frame in words."""
    return [str(flag.name).lower() for flag in Flag if flag and flag in flags]


def _good_ascompact(each: Good) -> dict[str, Any]:
    frame = each.frame
    found: dict[str, Any] = {
        "name": each.name,
        "meaning": each.meaning,
        "hex": encode_frame(frame).hex(),
        "type": int(frame.type),
        "flags": int(frame.flags),
        "flag_names": flag_names(frame.flags),
        "sequence": frame.sequence,
        "payload_bytes": len(frame.payload),
    }
    if each.is_arrow:
        found["is_arrow"] = True
    if each.message:
        head = bytes(frame.payload).split(b"\n")[0]
        found |= {"message": each.message, "says": json.loads(head)}
    return found if each.deltas is None else found | {"deltas": each.deltas}


def _bad_ascompact(each: Bad) -> dict[str, Any]:
    found: dict[str, Any] = {"name": each.name, "meaning": each.meaning, "hex": each.data.hex()}
    found |= {"reason": str(each.reason), "ends_the_connection": each.ends}
    return found | ({"message": each.message} if each.message else {})


def document() -> dict[str, Any]:
    """All of `golden.json`."""
    return {
        "about": "Frames of W1 in hex. README.md beside this file says what they mean.",
        "crc32c": [
            {"hex": "", "value": "00000000"},
            {"hex": b"123456789".hex(), "value": f"{google_crc32c.value(b'123456789'):08x}"},
            {"hex": "00" * 32, "value": f"{google_crc32c.value(bytes(32)):08x}"},
        ],
        "good": [_good_ascompact(each) for each in good()],
        "bad": [_bad_ascompact(each) for each in bad()],
    }


def as_text(found: dict[str, Any]) -> str:
    """The file's content."""
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(as_text(document()))
