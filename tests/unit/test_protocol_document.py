"""`docs/protocol/README.md` says what the server does (W1, W9): its session is had with a real one, its names are those
of the code."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import golden_frames as golden
from tests.support.served import home_at, served
from tidemark.wire import messages
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import Frame, FrameReader, FrameType
from tidemark.wire.limits import Limits

README = (golden.PATH.parent / "README.md").read_text()
# What differs from server to server.
OTHER = {"home", "server"}


def frames_of(connection: socket.socket) -> Iterator[tuple[FrameType, int, Any]]:
    """What the server sends, with its JSON."""
    reader = FrameReader()
    while data := connection.recv(65_536):
        for frame in reader.feed(data):
            yield as_said(frame)


def as_said(frame: Frame) -> tuple[FrameType, int, Any]:
    says = json.loads(bytes(frame.payload) or b"{}")
    return frame.type, frame.sequence, {key: value for key, value in says.items() if key not in OTHER}


def test_w9_the_session_of_the_document_is_had_with_a_server(tmp_path: Path) -> None:
    lines = re.findall(r"^([<>]) ([0-9a-f]+)$", README, re.MULTILINE)
    assert {side for side, _ in lines} == {"<", ">"}
    with (
        served(home_at(tmp_path / "home")) as server,
        socket.create_connection(("127.0.0.1", server.port)) as connection,
    ):
        connection.settimeout(10)
        answers = frames_of(connection)
        for side, text in lines:
            data = bytes.fromhex(text)
            if side == ">":
                connection.sendall(data)
                continue
            [frame] = FrameReader().feed(data)
            assert next(answers) == as_said(frame)


@pytest.mark.parametrize("reason", NackReason)
def test_every_reason_is_in_the_document(reason: NackReason) -> None:
    assert f"`{reason}`" in README


@pytest.mark.parametrize(
    "kind",
    [
        messages.Hello,
        messages.Welcome,
        messages.Ack,
        messages.Nack,
        messages.Subscribe,
        messages.Subscribed,
        messages.Topic,
        messages.Heartbeat,
        messages.Backpressure,
        messages.DeliveryHead,
        messages.WriteOutcome,
        Limits,
    ],
    ids=lambda kind: str(kind.__name__),
)
def test_every_field_is_in_the_document(kind: type[Any]) -> None:
    missing = [name for name in kind.__struct_fields__ if not re.search(rf"\b{name}\b", README)]
    assert not missing


def test_every_type_and_flag_is_in_the_document() -> None:
    for kind in FrameType:
        assert f"| {int(kind)} | {kind.name.lower()} |" in README
    for each in json.loads(golden.PATH.read_text())["crc32c"][1:]:
        assert f"0x{each['value'].upper()}" in README
