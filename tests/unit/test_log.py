"""The log cuts what a crash tore and refuses what no crash can have done (C7)."""

from pathlib import Path

import pytest

from tidemark.log.control import Lost, ProducerOpened, decode_controls, encode_controls
from tidemark.log.frames import FRAME_BYTES, HEADER_BYTES, Header
from tidemark.log.log_content import read_log
from tidemark.log.log_file import LogFile
from tidemark.model.shard_errors import LogDamageError
from tidemark.storage.disk import RealDisk

HEADER = Header(shard=0, number=1, incarnation=1, first_epoch=1, created_us=0)
PAYLOADS = [b"first", b"second payload", b"third"]
FILE_SIZE = 512


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    file = LogFile(RealDisk(), tmp_path, HEADER, FILE_SIZE)
    for epoch, payload in enumerate(PAYLOADS, start=1):
        file.append((epoch, epoch), [payload])
    file.close()
    return file.path


def payloads(path: Path) -> list[bytes] | None:
    content = read_log(RealDisk(), path)
    return None if content is None else [bytes(frame.payload) for frame in content.frames]


def frame_ends() -> list[int]:
    ends, end = [], HEADER_BYTES
    for payload in PAYLOADS:
        end += FRAME_BYTES + len(payload)
        ends.append(end)
    return ends


def test_what_was_appended_is_read_back(log_path: Path) -> None:
    content = read_log(RealDisk(), log_path)
    assert content is not None
    assert (content.header, content.is_torn) == (HEADER, False)
    assert [bytes(frame.payload) for frame in content.frames] == PAYLOADS


def test_any_flipped_bit_is_noticed_and_never_changes_what_is_read(log_path: Path) -> None:
    whole = log_path.read_bytes()
    last_frame = frame_ends()[-2]
    for position in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            log_path.write_bytes(damaged)
            if position < last_frame:
                # An acknowledged frame follows, so this is damage.
                with pytest.raises(LogDamageError):
                    payloads(log_path)
            else:
                found = payloads(log_path)
                assert found in (PAYLOADS, PAYLOADS[:-1])
                content = read_log(RealDisk(), log_path)
                assert content is not None
                assert content.is_torn


def test_a_frame_from_another_file_is_not_valid_here(tmp_path: Path, log_path: Path) -> None:
    other = LogFile(RealDisk(), tmp_path, HEADER._replace(number=2), FILE_SIZE)
    other.close()
    stolen = log_path.read_bytes()[HEADER_BYTES:]
    other.path.write_bytes(other.path.read_bytes()[:HEADER_BYTES] + stolen)
    assert payloads(other.path) == []


def test_control_messages_are_read_back() -> None:
    for message in (Lost(3, 9), ProducerOpened("web", 2)):
        assert decode_controls(memoryview(encode_controls([message]))) == [message]
