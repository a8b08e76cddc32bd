"""The sums over the log are what a look at every line gives, whoever has read which part of it before."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.entries import next_entry
from tests.support.live import TEN_O_CLOCK
from tidemark.log.manifest import Entry, HourCounts, Manifest, SourceHours
from tidemark.model.timegrid import HOUR_US, hour_key
from tidemark.observe import log_index
from tidemark.observe.log_index import FILE, RECEIPT, LogIndex, index_of, save_index
from tidemark.observe.sealed_log import Log
from tidemark.storage.home import Home


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    log_index._kept.clear()
    yield
    log_index._kept.clear()


def made_home(root: Path) -> Home:
    home = Home(root).create("shards = 2\n")
    for shard in range(2):
        home.segments(shard).mkdir(parents=True)
    return home


def seal(home: Home, shard: int, hour: int, *, sources: bool = True, lost: bool = False) -> None:
    manifest = Manifest(home.segments(shard))
    key = hour_key(TEN_O_CLOCK + hour * HOUR_US)
    counts = HourCounts(accepted=2, duplicate=1, refused=hour)
    entry = next_entry(manifest, sealed_us=TEN_O_CLOCK)
    entry = msgspec.structs.replace(
        entry,
        shard=shard,
        rows=3 + hour,
        verdicts=counts,
        event_hours={key: counts},
        receipt_hours={key: counts},
        stamp_hours={key: 2},
        sources={"shop/signal": SourceHours([key], [key], [key])} if sources else None,
        lost=[(entry.from_epoch, entry.from_epoch + 1)] if lost else [],
        sha256=f"{shard}{entry.number:063d}",
    )
    manifest.append(entry)


def by_every_line(entries: Iterator[Entry]) -> LogIndex:
    """The definition."""
    index = LogIndex()
    for entry in entries:
        index.add(entry)
    return index


def told(index: LogIndex) -> tuple[object, ...]:
    return index.shards, index.event, index.receipt, sorted(index.lost), index.last


SEGMENTS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=8
)


@given(SEGMENTS, st.data())
def test_whatever_was_read_kept_and_left_before_the_sums_are_those_of_every_line(
    tmp_path_factory: pytest.TempPathFactory, segments: list[tuple[int, int, bool, bool]], data: st.DataObject
) -> None:
    home = made_home(tmp_path_factory.mktemp("log") / "home")
    uptos = []
    for shard, hour, sources, lost in segments:
        seal(home, shard, hour, sources=sources, lost=lost)
        uptos.append(Log(home).sealed)
        if data.draw(st.booleans()):
            index_of(home, Log(home), uptos[-1])
        if data.draw(st.booleans()):
            save_index(home, index_of(home, Log(home), data.draw(st.sampled_from(uptos))))
        if data.draw(st.booleans()):
            log_index._kept.clear()
    upto = data.draw(st.sampled_from(uptos))
    log = Log(home)
    found = index_of(home, log, upto)
    assert told(found) == told(by_every_line(log.below(upto)))


def test_what_was_left_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made_home(tmp_path / "home")
    for hour in range(5):
        seal(home, 0, hour)
    save_index(home, index_of(home, Log(home), Log(home).sealed))
    log_index._kept.clear()
    seal(home, 0, 7)
    added: list[int] = []
    monkeypatch.setattr(LogIndex, "add", lambda _, entry: added.append(entry.number))
    index_of(home, Log(home), Log(home).sealed)
    assert added == [6]


@pytest.mark.parametrize("place", [0, 31, 32, 60, -1])
def test_a_damaged_or_cut_file_is_as_none(tmp_path: Path, place: int) -> None:
    home = made_home(tmp_path / "home")
    seal(home, 0, 1)
    index = index_of(home, Log(home), Log(home).sealed)
    save_index(home, index)
    whole = (home.plans / FILE).read_bytes()
    flipped = bytearray(whole)
    flipped[place] ^= 1
    for damaged in (bytes(flipped), whole[:place], b""):
        (home.plans / FILE).write_bytes(damaged)
        log_index._kept.clear()
        assert told(index_of(home, Log(home), Log(home).sealed)) == told(index)


def test_a_segment_that_does_not_follow_the_one_before_is_remembered_c7(tmp_path: Path) -> None:
    home = made_home(tmp_path / "home")
    seal(home, 0, 1)
    [entry] = Log(home).below(Log(home).sealed)
    index = by_every_line(iter([entry, msgspec.structs.replace(entry, number=2, from_epoch=9, to_epoch=12)]))
    assert index.shards[0].holes == {2: (9, entry.to_epoch)}


def test_what_was_returned_once_never_changes_and_is_returned_again_while_nothing_is_added(tmp_path: Path) -> None:
    """Sensors look in threads: one of them goes through the sums while another finds a new segment."""
    home = made_home(tmp_path / "home")
    seal(home, 0, 1, lost=True)
    first = index_of(home, Log(home), Log(home).sealed)
    assert index_of(home, Log(home), Log(home).sealed) is first
    before, hours = deepcopy(told(first)), iter(first.last[RECEIPT])
    next(hours)
    seal(home, 0, 2, lost=True)
    seal(home, 1, 3)
    second = index_of(home, Log(home), Log(home).sealed)
    assert list(hours) == []
    assert told(first) == before != told(second)


def test_a_copy_of_the_sums_has_nothing_in_common_with_them_that_changes(tmp_path: Path) -> None:
    home = made_home(tmp_path / "home")
    seal(home, 0, 1, lost=True)
    [entry] = Log(home).below(Log(home).sealed)
    later = [msgspec.structs.replace(entry, number=number, from_epoch=9 * number) for number in (2, 3)]
    index = by_every_line(iter([entry, later[0]]))
    before, copied = deepcopy(told(index)), index.copy()
    assert told(copied) == before
    copied.add(later[1])
    assert told(copied) == told(by_every_line(iter([entry, *later])))
    assert told(index) == before


def test_threads_that_look_while_the_log_grows_each_get_sums_that_hold(tmp_path: Path) -> None:
    home = made_home(tmp_path / "home")
    uptos = []
    for hour in range(20):
        seal(home, hour % 2, hour)
        uptos.append(Log(home).sealed)
    expected = [told(by_every_line(Log(home).below(upto))) for upto in uptos]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda upto: index_of(home, Log(home), upto), uptos))
    assert [told(index) for index in found] == expected
