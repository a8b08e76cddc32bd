"""A group is read back from its bytes as it was decided, wherever they lie, and takes no room for what is repeated."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, sample, signal, vector
from tidemark.event_time.watermarks import Watermarks
from tidemark.log.control import ProducerOpened
from tidemark.log.frames import Header
from tidemark.log.groups import decode_group, encode_group
from tidemark.log.log_content import read_log
from tidemark.log.log_file import LogFile
from tidemark.log.log_rows import LogRows
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import LogDamageError
from tidemark.storage.disk import RealDisk
from tidemark.verdicts.arrival import Arrivals, NumberedWrite
from tidemark.verdicts.identities import Identities

SETTINGS = Settings(recent_identities=100)
DELTAS = [
    signal("a"),
    signal("a"),
    signal("b", namespace="fleet", origin="elsewhere"),
    sample("c", 1.0, host="x"),
    vector("d", "create", values=[1.0, 2.0]),
    signal("", at=TEN_O_CLOCK),
]


def decided(*writes: list[int]) -> LogRows:
    arrivals = Arrivals(3, SETTINGS, Watermarks(SETTINGS), Identities(100))
    numbered = [
        NumberedWrite(epoch, f"p{epoch % 2}", epoch, TEN_O_CLOCK + epoch, [DELTAS[place] for place in places])
        for epoch, places in enumerate(writes, 1)
    ]
    return arrivals.decide(numbered)[0]


places = st.lists(st.integers(0, len(DELTAS) - 1), min_size=1, max_size=4)


@given(st.lists(places, min_size=1, max_size=4), st.integers(0, 9))
def test_a_group_is_read_back_wherever_its_bytes_lie(writes: list[list[int]], before: int) -> None:
    rows, controls = decided(*writes), [ProducerOpened("web", 1)]
    payload = encode_group(controls, rows)
    found = decode_group(memoryview(b"x" * before + payload.head + payload.body.to_pybytes())[before:])
    assert found.controls == controls
    assert found.rows is not None
    assert found.rows.batch().equals(rows.batch())
    assert found.rows.writes == rows.writes


def test_a_part_of_a_group_is_a_group() -> None:
    batch = decided([0, 2, 3], [4, 5]).batch()
    for begin in range(len(batch)):
        part = batch.slice(begin, 3)
        assert LogRows.of(part).batch().equals(part)


def test_what_is_the_same_on_every_row_is_stated_once() -> None:
    arrivals = Arrivals(0, SETTINGS, Watermarks(SETTINGS), Identities(0))
    sent = [[signal(f"{write}-{place:04d}", at=TEN_O_CLOCK) for place in range(1_000)] for write in range(2)]
    for epoch, deltas in enumerate(sent, 1):  # the second has a watermark
        rows, _ = arrivals.decide([NumberedWrite(epoch, "web", epoch, TEN_O_CLOCK + epoch, deltas)])
    assert list(rows.columns) == ["identity_hash", "content_hash", "delta_id", "event_ts", "signal"]
    assert rows.writes.stamps_us is not None
    assert encode_group([], rows).bytes < 80 * 1_000


def test_a_log_of_another_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = LogFile(RealDisk(), tmp_path, Header(0, 1, 1, 1, 0), 4_096)
    file.append((1, 1), encode_group([], decided([0])))
    data = bytearray(file.path.read_bytes())
    data[8:12] = (2).to_bytes(4, "big")
    file.path.write_bytes(data)
    with pytest.raises(LogDamageError, match="Use the version of Tidemark that wrote it"):
        read_log(RealDisk(), file.path)
