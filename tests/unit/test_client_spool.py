"""The spool: whatever a crash or a disk does to its files, a write keeps its number and its content (Q2)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemark
from tidemark.client import Client, ClientFullError
from tidemark.client.batches import Content
from tidemark.client.errors import SpoolBusyError, SpoolDamageError, SpoolError
from tidemark.client.spool import Spool
from tidemark.testing import server
from tidemark.wire.frames import Flag, FrameType

SOON_S = 30.0
ROOT = Path(__file__).resolve().parents[2]


def content(number: int) -> Content:
    return Content(FrameType.DELTA, Flag.BATCHED, 1 + number % 3, b'{"n":%d}' % number * (1 + number % 5))


def filled(path: Path, groups: list[int], file_bytes: int = 300) -> list[Content]:
    """A spool with groups of so many writes, left as a crash leaves it."""
    spool = Spool(path, "shop", file_bytes)
    spool.state.base = 10
    spool.save()
    contents: list[Content] = []
    for size in groups:
        group = [content(len(contents) + each) for each in range(size)]
        assert spool.append(group) == len(contents) + 1
        contents += group
    crash(spool)
    return contents


def crash(spool: Spool) -> None:
    """Let go of the files without a word, as the end of a process does."""
    os.close(spool.lock_fd)
    if spool._out is not None:
        os.close(spool._out)


def found_in(path: Path) -> list[Content]:
    spool = Spool(path, "shop")
    try:
        numbers = [number for number, _ in spool.waiting]
        assert numbers == list(range(1, len(numbers) + 1))
        assert spool.state.next == len(numbers) + 1
        return [spool.read(number) for number in numbers]
    finally:
        crash(spool)


def files_of(path: Path) -> list[Path]:
    return sorted(path.glob("*.spool"))


def test_what_was_spooled_is_there_with_its_numbers_after_any_restart(tmp_path: Path) -> None:
    contents = filled(tmp_path, [1, 3, 2, 5, 1, 1, 4], file_bytes=100)
    assert len(files_of(tmp_path)) > 2
    assert found_in(tmp_path) == contents
    assert found_in(tmp_path) == contents


def test_a_file_that_ends_anywhere_has_every_group_that_was_synced(tmp_path: Path) -> None:
    """Every byte at which a crash may have stopped the last append."""
    groups = [2, 1, 3]
    contents = filled(tmp_path, groups, file_bytes=10_000)
    [file] = files_of(tmp_path)
    whole = file.read_bytes()
    ends, start = [0], 0
    for size in groups:
        group_ends = [len(contents[each].payload) + 14 for each in range(start, start + size)]
        ends.append(ends[-1] + 24 + sum(group_ends))
        start += size
    assert ends[-1] == len(whole)
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        synced = sum(1 for end in ends[1:] if end <= length)
        assert found_in(tmp_path) == contents[: sum(groups[:synced])], length
        if not file.exists():
            assert synced == 0
            file.touch()
    file.write_bytes(whole)
    assert found_in(tmp_path) == contents


def test_after_a_torn_end_the_next_write_has_the_number_of_the_torn_one(tmp_path: Path) -> None:
    """It had never been sent: only what is synced is."""
    contents = filled(tmp_path, [2, 2], file_bytes=10_000)
    [file] = files_of(tmp_path)
    file.write_bytes(file.read_bytes()[:-3])
    spool = Spool(tmp_path, "shop")
    assert spool.torn_bytes > 0
    assert spool.append([content(7)]) == 3
    crash(spool)
    assert found_in(tmp_path) == [*contents[:2], content(7)]


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_and_never_read_as_a_delta(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    """Before the last group it is damage; in the last one it looks as if a crash had torn it."""
    path = tmp_path_factory.mktemp("spool")
    contents = filled(path, [2, 1, 3, 2])
    files = files_of(path)
    data = bytearray(b"".join(file.read_bytes() for file in files))
    place %= len(data)
    data[place] ^= 1 << bit
    for file in files:
        size = file.stat().st_size
        file.write_bytes(data[:size])
        del data[:size]
    try:
        assert found_in(path) == contents[:6]
    except SpoolDamageError as error:
        assert "damaged" in str(error)  # noqa: PT017 - which of the two depends on the place


def test_a_bit_that_flips_while_the_spool_is_open_is_not_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "shop")
    spool.append([content(0), content(1)])
    [file] = files_of(tmp_path)
    data = bytearray(file.read_bytes())
    data[-8] ^= 1
    file.write_bytes(data)
    assert spool.read(1) == content(0)
    with pytest.raises(SpoolDamageError, match="It was not sent"):
        spool.read(2)


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    filled(tmp_path, [1] * 20)
    files_of(tmp_path)[1].unlink()
    with pytest.raises(SpoolDamageError, match="has no file with writes"):
        Spool(tmp_path, "shop")


@pytest.mark.parametrize("text", [b"", b"{}", b"{}\n00000000", b"\xff\n1"])
def test_a_damaged_state_is_told_and_not_guessed(tmp_path: Path, text: bytes) -> None:
    filled(tmp_path, [1])
    (tmp_path / "state.json").write_bytes(text)
    with pytest.raises(SpoolDamageError, match="damaged"):
        Spool(tmp_path, "shop")
    (tmp_path / "state.json").unlink()
    with pytest.raises(SpoolDamageError, match="missing"):
        Spool(tmp_path, "shop")


def test_a_spool_has_one_client_at_a_time_and_one_producer(tmp_path: Path) -> None:
    first = Spool(tmp_path, "shop")
    with pytest.raises(SpoolBusyError, match="in use by another client"):
        Spool(tmp_path, "shop")
    first.close(is_empty=True)
    with pytest.raises(SpoolError, match="belongs to producer 'shop'"):
        Spool(tmp_path, "other")
    Spool(tmp_path, "shop").close(is_empty=True)


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpoolError, match="cannot be used"):
        Spool(tmp_path / "file", "shop")


def test_acknowledged_files_are_removed_and_numbers_never_come_again(tmp_path: Path) -> None:
    filled(tmp_path, [1] * 30)
    spool = Spool(tmp_path, "shop")
    before = len(files_of(tmp_path))
    spool.acknowledge(15)
    assert 1 < len(files_of(tmp_path)) < before
    spool.acknowledge(30)
    assert len(files_of(tmp_path)) == 1, "the last file has the last number"
    crash(spool)
    spool = Spool(tmp_path, "shop")
    assert spool.state.next == 31
    spool.close(is_empty=True)
    assert files_of(tmp_path) == []
    spool = Spool(tmp_path, "shop")
    assert spool.append([content(0)]) == 31
    assert spool.state.base == 10
    crash(spool)


def test_what_an_offline_client_has_spooled_the_next_one_sends(tmp_path: Path) -> None:
    with server() as found:
        found.stop()
        client = tidemark.connect(found.url, producer="shop", spool=tmp_path, rows=3, linger_s=0.0)
        client.send([{"n": number} for number in range(10)]).wait("spooled", timeout=SOON_S)
        report = client.close(0.0)
        assert (report.left, report.in_spool) == (10, 10)
        assert str(report).endswith("the next client with it sends them.")
        found.start()
        with tidemark.connect(found.url, producer="shop", spool=tmp_path, longest_wait_s=0.05) as client:
            assert client.flush(SOON_S)
        assert [delta["n"] for delta in found.deltas] == list(range(10))
        assert files_of(tmp_path) == []


def test_a_producer_with_writes_from_elsewhere_is_numbered_on_behind_them(tmp_path: Path) -> None:
    """A new spool may be filled before the server's mark is known."""
    with server() as found:
        with tidemark.connect(found.url, producer="shop", rows=1) as client:
            client.send([{"n": 0}, {"n": 1}]).wait(timeout=SOON_S)
        found.stop()
        client = tidemark.connect(found.url, producer="shop", spool=tmp_path, rows=1, longest_wait_s=0.05)
        client.send([{"n": 2}]).wait("spooled", timeout=SOON_S)
        client.close(0.0)
        found.start()
        with tidemark.connect(found.url, producer="shop", spool=tmp_path, rows=1) as client:
            client.send([{"n": 3}]).wait(timeout=SOON_S)
        assert found.writes("shop") == {number + 1: [{"n": number}] for number in range(4)}


def test_a_full_spool_gives_back(tmp_path: Path) -> None:
    with server() as found:
        found.stop()
        client = tidemark.connect(found.url, producer="shop", spool=tmp_path, rows=1, spool_bytes=200)
        with pytest.raises(ClientFullError):
            send_until_full(client)
        assert client.stats.waiting_bytes <= 200
        client.close(0.0)


def send_until_full(client: Client) -> None:
    for number in range(1_000):
        client.send([{"n": number}], timeout=0.02)


SENDING = """
import sys, tidemark
url, spool = sys.argv[1:]
client = tidemark.connect(url, producer="shop", spool=spool, rows=5, linger_s=0.0, longest_wait_s=0.05)
numbers = iter(map(int, sys.stdin))
for number in numbers:
    client.send([{"n": number}]).wait("spooled")
    print(number, flush=True)
"""


def test_a_killed_program_goes_on_where_it_was(tmp_path: Path) -> None:
    """`kill -9` at any moment: what was spooled arrives once, and what was not may be sent again by its source."""
    random = Random(3)
    with server() as found:
        next_number = 0
        for _ in range(3):
            with subprocess.Popen(
                [sys.executable, "-c", SENDING, found.url, str(tmp_path / "spool")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                for _ in range(random.randint(5, 40)):
                    process.stdin.write(b"%d\n" % next_number)
                    process.stdin.flush()
                    assert int(process.stdout.readline()) == next_number
                    next_number += 1
                    if random.random() < 0.1:
                        found.cut()
                time.sleep(random.random() / 100)
                os.kill(process.pid, signal.SIGKILL)
        with tidemark.connect(found.url, producer="shop", spool=tmp_path / "spool") as client:
            assert client.flush(SOON_S)
        assert [delta["n"] for delta in found.deltas] == list(range(next_number))
