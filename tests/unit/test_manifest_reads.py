"""The manifest is read from its head on, and any part of it alone; a crash while it is written takes nothing away (C7).

What lies before the head is not read by a start, so a start costs the same however long the manifest is.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.disks import Call, Moment, SimulatedDisk, Survival
from tests.support.entries import batch, next_entry
from tests.support.live import TEN_O_CLOCK
from tidemark.log.manifest import HEAD_FILE, Entry, Head, Manifest, Totals, checksum_of, line_of
from tidemark.model.shard_errors import ManifestDamageError
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.disk import Disk

DIRECTORY = Path("/home/segments")
DAY_US = 24 * HOUR_US

# What a segment adds: hours since the one before, epochs, lost epochs before them, refused deltas.
SEGMENTS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 5), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=30
)


def empty() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    return disk


def written(disk: Disk, segments: list[tuple[int, int, int, int]]) -> list[Entry]:
    manifest, now_us, entries = Manifest(DIRECTORY, disk), TEN_O_CLOCK, []
    for hours, epochs, lost, refused in segments:
        now_us += hours * HOUR_US
        entry = next_entry(manifest, sealed_us=now_us, epochs=epochs, lost=lost, refused=refused)
        number = manifest.count + 1
        entries.append(manifest.append(entry, [batch(number, entry.from_epoch, entry.to_epoch)]))
    return entries


def day_files(disk: Disk) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if name.startswith("manifest-")]


def in_the_older_form(disk: SimulatedDisk, entries: list[Entry]) -> None:
    """Put the same manifest in place as it was written before lines had totals and the head a place."""
    by_file: dict[str, bytes] = dict.fromkeys(day_files(disk), b"")
    previous = "0" * 64
    for entry, name in zip(entries, _files_of(disk), strict=True):
        old = {
            name: value
            for name, value in msgspec.to_builtins(entry).items()
            if name not in {"totals", "batch_hours", "batches_sha256"}
        }
        old["batches"] = msgspec.to_builtins([batch(entry.number, entry.from_epoch, entry.to_epoch)])
        old["previous"] = previous
        line = msgspec.json.encode(old)
        by_file[name] += line + b"\n"
        previous = checksum_of(line)
    for name, data in by_file.items():
        disk.store(DIRECTORY / name, data)
    disk.store(DIRECTORY / HEAD_FILE, msgspec.json.encode({"number": len(entries), "sha256": previous}))


def _files_of(disk: Disk) -> Iterator[str]:
    """The file of each line, in order."""
    for name in day_files(disk):
        yield from itertools.repeat(name, disk.read(DIRECTORY / name).count(b"\n"))


@given(SEGMENTS, st.data())
def test_any_part_of_the_row_is_what_the_whole_row_has_there(
    segments: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    disk = empty()
    entries = written(disk, segments)
    manifest = Manifest(DIRECTORY, disk)
    assert list(manifest.all()) == entries == list(manifest.newest())[::-1]
    assert (manifest.last, manifest.count, manifest.to_epoch) == (entries[-1], len(entries), entries[-1].to_epoch)
    first, end = (data.draw(st.integers(1, len(entries) + 2)) for _ in range(2))
    assert list(manifest.numbered(first, end)) == entries[first - 1 : end - 1]
    begin, stop = (data.draw(st.integers(0, manifest.to_epoch + 2)) for _ in range(2))
    held = [entry for entry in entries if entry.from_epoch < stop and entry.to_epoch > begin] if begin < stop else []
    assert list(manifest.between(begin, stop)) == held
    before = [entry for entry in entries if entry.to_epoch <= begin + 1]
    assert manifest.up_to(begin) == (before[-1] if before else None)
    assert manifest.is_lost(begin) == any(a <= begin < b for entry in entries for a, b in entry.lost)


@given(SEGMENTS)
def test_a_line_says_what_everything_up_to_it_adds_up_to(segments: list[tuple[int, int, int, int]]) -> None:
    disk = empty()
    entries = written(disk, segments)
    for number, entry in enumerate(entries, 1):
        upto = entries[:number]
        assert entry.totals is not None
        assert entry.totals.rows == sum(each.rows for each in upto)
        assert entry.totals.bytes == sum(each.bytes for each in upto)
        assert entry.totals.verdicts.refused == sum(each.verdicts.refused for each in upto)
        assert (entry.totals.batch, entry.totals.batched_to) == (number, entry.to_epoch)
    assert Manifest(DIRECTORY, disk).totals == entries[-1].totals


def test_a_start_reads_nothing_before_the_line_that_the_head_names() -> None:
    disk = empty()
    entries = written(disk, [(8, 1, 0, 0)] * 12)
    for name in day_files(disk)[:-1]:
        disk.store(DIRECTORY / name, b"whatever stands here\n")
    manifest = Manifest(DIRECTORY, disk)
    assert (manifest.count, manifest.last, manifest.totals) == (12, entries[-1], entries[-1].totals)
    manifest.repair()
    manifest.append(next_entry(manifest, sealed_us=TEN_O_CLOCK + 9 * DAY_US))
    with pytest.raises(ManifestDamageError, match="no manifest entry"):
        list(manifest.all())


@pytest.mark.parametrize("head", [None, b"", b"\0" * 90, b'{"number":1,"sha256":"00","file":"gone","start":7}'])
def test_a_head_that_is_missing_or_says_nothing_is_made_again_from_the_lines(head: bytes | None) -> None:
    disk = empty()
    entries = written(disk, [(8, 1, 0, 0)] * 5)
    whole = disk.read(DIRECTORY / HEAD_FILE)
    if head is None:
        disk.remove(DIRECTORY / HEAD_FILE)
    elif b"number" in head:
        wrong = Head(5, entries[-1].previous, "manifest-2000-01-01.jsonl", 7)
        known = msgspec.json.decode(whole, type=Head)
        disk.store(DIRECTORY / HEAD_FILE, msgspec.json.encode(msgspec.structs.replace(wrong, sha256=known.sha256)))
    else:
        disk.store(DIRECTORY / HEAD_FILE, head)
    manifest = Manifest(DIRECTORY, disk)
    assert list(manifest.all()) == entries
    manifest.repair()
    assert disk.read(DIRECTORY / HEAD_FILE) == whole


@given(SEGMENTS)
def test_a_manifest_of_the_older_form_says_the_same_and_the_head_of_it_is_new_once_a_writer_opened_it(
    segments: list[tuple[int, int, int, int]],
) -> None:
    disk = empty()
    entries = written(disk, segments)
    totals = Manifest(DIRECTORY, disk).totals
    in_the_older_form(disk, entries)
    manifest = Manifest(DIRECTORY, disk)
    assert (manifest.count, manifest.to_epoch, manifest.totals) == (len(entries), entries[-1].to_epoch, totals)
    assert [entry.sha256 for entry in manifest.all()] == [entry.sha256 for entry in entries]
    for entry in entries:
        found = manifest.up_to(entry.to_epoch - 1)
        assert manifest.totals_of(found) == entry.totals
    manifest.repair()
    head = msgspec.json.decode(disk.read(DIRECTORY / HEAD_FILE), type=Head)
    assert (head.file, head.totals) == (day_files(disk)[-1], totals)
    # The next line has totals again.
    added = manifest.append(next_entry(manifest, sealed_us=TEN_O_CLOCK + 99 * DAY_US))
    assert added.totals == totals.plus(added, [])
    assert Manifest(DIRECTORY, disk).totals == added.totals


def crashes(disk: SimulatedDisk, work: Callable[[], object], check: Callable[[str, SimulatedDisk], None]) -> int:
    """Try every crash while something is done: at each system call, with whatever may be left of it."""
    tried = itertools.count()

    def look(call: Call, moment: Moment, then: SimulatedDisk) -> None:
        for mode in Survival:
            for seed in range(3 if mode in {Survival.RANDOM, Survival.PREFIX, Survival.SUFFIX} else 1):
                next(tried)
                check(f"{moment.value} {call}, then {mode} {seed}", then.after(mode, Random(seed)))

    disk.watch(look)
    work()
    disk.kernel.on_call = None
    return next(tried)


def check_goes_on(where: str, disk: SimulatedDisk, told: list[Entry], more: Entry | None = None) -> None:
    """What was told is there, at most one line more; and a writer can go on from there."""
    manifest = Manifest(DIRECTORY, disk)
    found = [entry.sha256 for entry in manifest.all()]
    expected = [entry.sha256 for entry in told]
    assert found in (expected, [*expected, more.sha256] if more else expected), where
    manifest.repair()
    again = manifest.append(next_entry(manifest, sealed_us=TEN_O_CLOCK + 99 * DAY_US), [])
    after = Manifest(DIRECTORY, disk)
    assert [entry.sha256 for entry in after.all()] == [*found, again.sha256], where
    fold = Totals()
    for entry in after.all():
        batches = [batch(entry.number, entry.from_epoch, entry.to_epoch)] if entry.number <= len(found) else []
        fold = fold.plus(entry, batches)
    assert after.totals == fold, where


@pytest.mark.parametrize("hours", [1, 24], ids=["the same day", "the first line of a day"])
def test_a_crash_at_any_step_of_writing_a_line_and_its_head_takes_nothing_away_c7(hours: int) -> None:
    disk = empty()
    told = written(disk, [(1, 2, 0, 0), (1, 1, 1, 1), (30, 1, 0, 0)])
    manifest = Manifest(DIRECTORY, disk)
    assert manifest.last is not None
    entry = next_entry(manifest, sealed_us=manifest.last.sealed_us + hours * HOUR_US)
    batches = [batch(manifest.count + 1, entry.from_epoch, entry.to_epoch)]
    tried = crashes(
        disk, lambda: manifest.append(entry, batches), lambda where, then: check_goes_on(where, then, told, entry)
    )
    assert tried > 100, "a line and a head are several calls"
    told.append(entry)
    check_goes_on("afterwards", disk.after(Survival.NOTHING, Random(0)), told)


def test_a_crash_at_any_step_of_a_repair_takes_nothing_away_c7() -> None:
    disk = empty()
    told = written(disk, [(1, 2, 0, 0), (1, 1, 1, 1), (30, 1, 0, 0)])
    last = DIRECTORY / day_files(disk)[-1]
    disk.store(last, disk.read(last) + b'{"shard":0,"num')
    disk.remove(DIRECTORY / HEAD_FILE)
    manifest = Manifest(DIRECTORY, disk)
    assert crashes(disk, manifest.repair, lambda where, then: check_goes_on(where, then, told)) > 100


def test_a_crash_at_any_step_of_the_first_start_on_a_manifest_of_the_older_form_takes_nothing_away_c7() -> None:
    disk = empty()
    told = written(disk, [(1, 2, 0, 0), (1, 1, 1, 1), (30, 1, 0, 0)])
    in_the_older_form(disk, told)
    manifest = Manifest(DIRECTORY, disk)
    assert crashes(disk, manifest.repair, lambda where, then: check_goes_on(where, then, told)) > 100
    assert line_of(next(manifest.all())) != line_of(told[0]), "old lines stay as they are"
