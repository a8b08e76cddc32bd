"""Starting after any crash, at the level of log, segments and manifest: exhaustively, on a simulated disk (C7, Q2).

What becomes of damage, in short: a bad end of the last log file is cut, because a crash leaves such ends and a write
that lies there need not have been acknowledged; a bad anything else is refused and nothing is changed.
"""

from pathlib import Path
from random import Random

import pytest

from chaos.disks import EVERY_KIND, SYNCS, CallKind, Fault, FaultyDisk, SimulatedDisk, Survival
from tests.support.live import TEN_O_CLOCK
from tests.support.lives import (
    FILES,
    PRODUCER,
    SETTINGS,
    Checker,
    History,
    Life,
    append_group,
    check,
    live,
    paths_of,
    seal_found,
    sealed_rows,
    start,
    start_and_seal,
    watched,
)
from tidemark.log.control import ProducerOpened
from tidemark.log.frames import HEADER_BYTES, Header
from tidemark.log.log_content import LogContent, log_name, read_log
from tidemark.log.log_file import LogFile
from tidemark.log.manifest import Manifest
from tidemark.model.shard_errors import LogDamageError
from tidemark.shard_state.fence import INCARNATION_FILE

FIRST, SECOND = (FILES.log / log_name(number) for number in (1, 2))
# With a seal after the third, and one at the end.
WRITES = 4


@pytest.fixture
def flushed() -> SimulatedDisk:
    """One log file with three writes, all flushed, as a crash leaves it."""
    disk = SimulatedDisk()
    life = Life(disk, History())
    for sequence in range(1, 4):
        life.send(sequence)
    return disk.crash(Survival.NOTHING, Random(0))


@pytest.fixture
def opened() -> SimulatedDisk:
    """One small log file that says three times that a producer was opened, with a few zeros behind."""
    disk = SimulatedDisk()
    start(disk)
    file = LogFile(disk, FILES.log, Header(0, 1, 1, 1, TEN_O_CLOCK), 400)
    for instance in range(1, 4):
        append_group(file, [ProducerOpened(PRODUCER, instance)], 0, None)
    return disk.crash(Survival.NOTHING, Random(0))


def content_of(disk: SimulatedDisk, path: Path = FIRST) -> LogContent:
    content = read_log(disk, path)
    assert content is not None
    return content


def with_log(disk: SimulatedDisk, data: bytes, path: Path = FIRST) -> SimulatedDisk:
    """The same disk with another log file."""
    damaged = disk.after(Survival.EVERYTHING, Random(0))
    damaged.store(path, data)
    return damaged


def followed(disk: SimulatedDisk) -> SimulatedDisk:
    """The same disk with one more log file, as if the shard had gone on."""
    disk = disk.after(Survival.EVERYTHING, Random(0))
    header = content_of(disk).header._replace(number=2, first_epoch=content_of(disk).next_epoch)
    LogFile(disk, FILES.log, header, SETTINGS.segment_bytes)
    return disk.after(Survival.EVERYTHING, Random(0))


def payloads(content: LogContent | None) -> list[bytes]:
    return [bytes(frame.payload) for frame in content.frames] if content else []


def flips(data: bytes, step: int = 1) -> list[tuple[int, bytes]]:
    """Every bit (or every `step`-th) turned over once, and the byte that it is in."""
    damaged = []
    for bit in range(0, 8 * len(data), step):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        damaged.append((bit // 8, bytes(changed)))
    return damaged


def is_refused(disk: SimulatedDisk) -> bool:
    """Whether the start is refused; if it is, nothing may have changed but who may write (C14)."""
    before = files_of(disk)
    try:
        start_and_seal(disk)
    except LogDamageError:
        assert files_of(disk) == before
        return True
    return False


def files_of(disk: SimulatedDisk) -> dict[Path, bytes]:
    """Every file of the shard, except for the one that each start writes before it reads anything."""
    return {path: disk.read(path) for path in paths_of(disk) if path.name != INCARNATION_FILE}


# A log file that is cut anywhere.


def test_a_log_cut_at_any_byte_is_read_up_to_its_last_whole_frame(flushed: SimulatedDisk) -> None:
    whole = flushed.read(FIRST)
    content = content_of(flushed)
    for size in range(len(whole) + 1):
        flushed.store(FIRST, whole[:size])
        left = read_log(flushed, FIRST)
        assert payloads(left) == [bytes(frame.payload) for frame in content.frames if frame.end <= size], size
        assert (left is None) == (size < HEADER_BYTES)


def test_a_start_from_a_log_cut_at_any_byte_keeps_exactly_the_whole_frames(opened: SimulatedDisk) -> None:
    whole = opened.read(FIRST)
    ends = [frame.end for frame in content_of(opened).frames]
    for size in range(len(whole) + 1):
        found = start(with_log(opened, whole[:size]))
        assert found.producers.open(PRODUCER) == 1 + sum(end <= size for end in ends), size


@pytest.mark.parametrize("step", [199, pytest.param(1, marks=pytest.mark.slow)])
def test_a_start_from_a_log_cut_at_any_byte_keeps_exactly_the_whole_writes(flushed: SimulatedDisk, step: int) -> None:
    whole = flushed.read(FIRST)
    ends = [frame.end for frame in content_of(flushed).frames if frame.last_epoch]
    sizes = {*range(0, len(whole), step), *(end + off for end in (HEADER_BYTES, *ends) for off in (-1, 0, 1))}
    for size in sorted(sizes):
        damaged = with_log(flushed, whole[:size])
        found = start_and_seal(damaged)
        last = sum(end <= size for end in ends)
        assert found.producers.mark(PRODUCER) == last, size
        assert [row.sequence for row in sealed_rows(damaged)] == [at for at in range(1, last + 1) for _ in range(2)]


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
def test_a_log_that_is_cut_before_its_last_write_is_refused_if_another_file_follows(
    flushed: SimulatedDisk, step: int
) -> None:
    whole = flushed.read(FIRST)
    disk = followed(flushed)
    end = content_of(disk).end
    assert not is_refused(disk.after(Survival.EVERYTHING, Random(0)))
    for size in sorted({*range(0, end, step), *(frame.offset for frame in content_of(disk).frames)}):
        assert is_refused(with_log(disk, whole[:size])), size
    assert not is_refused(with_log(disk, whole[:end]))


def test_a_log_file_that_is_missing_between_two_others_is_noticed() -> None:
    disk, history = SimulatedDisk(), History()
    life = Life(disk, history)
    life.send(1)
    content = content_of(disk)
    for number in (2, 3):
        LogFile(disk, FILES.log, content.header._replace(number=number, first_epoch=content.next_epoch), 400)
    disk = disk.crash(Survival.NOTHING, Random(0))
    assert not is_refused(disk.after(Survival.EVERYTHING, Random(0)))
    disk.remove(SECOND)
    assert is_refused(disk)


def test_a_log_file_that_lost_whole_writes_is_refused_if_a_file_of_the_next_life_follows(
    flushed: SimulatedDisk,
) -> None:
    content = content_of(flushed)
    disk = flushed.after(Survival.EVERYTHING, Random(0))
    Life(disk, History()).send(4)
    whole = disk.read(FIRST)
    assert len(whole) == content.end, "nothing is left behind what was found"
    for frame in content.frames[1:]:
        assert is_refused(with_log(disk, whole[: frame.offset])), frame.offset
    assert not is_refused(disk)


@pytest.mark.parametrize("size", [1, 600])
def test_a_torn_end_is_cut_before_the_next_file_is_begun(flushed: SimulatedDisk, size: int) -> None:
    """On the disk, and not in the cache alone: otherwise the next life finds a torn file that another follows."""
    content = content_of(flushed)
    torn = with_log(flushed, flushed.read(FIRST)[: content.end - 1] + bytes([7]) * size)
    history, checker = History(), Checker(seeds=3)
    history.given = {epoch: epoch for epoch in (1, 2, 3)}
    moments = watched(torn, history)
    Life(torn, history).send(3)
    for where, then, told in moments:
        checker.check_all(then, told, where)
    assert content_of(torn).end == len(torn.read(FIRST)) == content.frames[-1].offset


# A log file with any bit turned over.


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_or_cut_with_the_last_frame_and_never_read(flushed: SimulatedDisk, step: int) -> None:
    """Refused: anywhere before the last frame. Cut: in the last frame (it goes) and in the zeros behind (they go).

    That the last frame goes is the price of cutting torn ends: a sector that was never written and one that has gone
    bad look the same.
    """
    whole = flushed.read(FIRST)
    content = content_of(flushed)
    for position, damaged in flips(whole, step):
        flushed.store(FIRST, damaged)
        if position < content.frames[-1].offset:
            with pytest.raises(LogDamageError):
                read_log(flushed, FIRST)
            continue
        left = content_of(flushed)
        kept = content.frames[:-1] if position < content.end else content.frames
        assert payloads(left) == [bytes(frame.payload) for frame in kept], position
        assert left.is_torn


def test_a_start_from_a_log_with_any_bit_flipped_is_refused_or_knows_nothing_wrong(opened: SimulatedDisk) -> None:
    whole = opened.read(FIRST)
    content = content_of(opened)
    for position, changed in flips(whole):
        damaged = with_log(opened, changed)
        if position < content.frames[-1].offset:
            assert is_refused(damaged), position
        else:
            assert start(damaged).producers.open(PRODUCER) == (3 if position < content.end else 4), position


@pytest.mark.parametrize("step", [811, pytest.param(7, marks=pytest.mark.slow)])
def test_a_start_from_writes_with_a_bit_flipped_is_refused_or_has_no_wrong_row(
    flushed: SimulatedDisk, step: int
) -> None:
    whole = flushed.read(FIRST)
    content = content_of(flushed)
    for position, changed in flips(whole, step):
        damaged = with_log(flushed, changed)
        assert is_refused(damaged) == (position < content.frames[-1].offset), position
        rows = sealed_rows(damaged)
        if position >= content.frames[-1].offset:
            assert [row.sequence for row in rows] == ([1, 1, 2, 2] if position < content.end else [1, 1, 2, 2, 3, 3])
        assert all(row.delta_id == f"{row.sequence}-{row.ordinal}" for row in rows)


def test_any_bit_flipped_in_a_file_that_another_follows_is_refused(opened: SimulatedDisk) -> None:
    whole = opened.read(FIRST)
    disk = followed(opened)
    for position, changed in flips(whole):
        assert is_refused(with_log(disk, changed)), position


def test_a_header_that_is_gone_is_refused_if_anything_is_behind_it(opened: SimulatedDisk) -> None:
    whole = opened.read(FIRST)
    assert is_refused(with_log(opened, bytes(HEADER_BYTES) + whole[HEADER_BYTES:]))
    for _, changed in flips(whole[:HEADER_BYTES]):
        assert not is_refused(with_log(opened, changed + bytes(100))), "nothing was ever written behind it"


# A crash at every disk call.


def test_whenever_the_power_goes_and_whatever_is_left_nothing_told_is_wrong() -> None:
    disk, history, checker = SimulatedDisk(), History(), Checker(seeds=3)
    moments = watched(disk, history)
    live(disk, history, WRITES)
    for where, then, told in moments:
        checker.check_all(then, told, where)
    checker.check_all(disk, history, "at the end")
    assert len(moments) > len(disk.trace)
    assert checker.outcomes > 100


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_and_then_a_power_cut_during_the_next_start_take_nothing_away(every: int) -> None:
    """The killed process left things in the cache; whatever the next start concludes from them must stay true."""
    disk, history, checker = SimulatedDisk(), History(), Checker(seeds=2 if every == 1 else 1)
    moments = watched(disk, history)
    live(disk, history, WRITES)
    for where, killed, told in moments[::every]:
        during_start = watched(killed, told)
        start_and_seal(killed)
        for where_then, then, _ in during_start:
            checker.check_all(then, told, f"killed {where}; started again, {where_then}")
        checker.check_all(killed, told, f"killed {where}; started again")


@pytest.mark.parametrize("seals_at_once", [False, True], ids=["sealed later", "sealed at once"])
def test_what_is_told_after_a_kill_is_kept_through_a_power_cut(seals_at_once: bool) -> None:
    disk, history, checker = SimulatedDisk(), History(), Checker(seeds=2)
    moments = watched(disk, history)
    live(disk, history, WRITES)
    for where, killed, told in moments:
        life = Life(killed, told, seals_at_once=seals_at_once)
        for sequence in range(1, told.acknowledged + 2):
            life.send(sequence)
        checker.check_all(killed, told, f"killed {where}; went on")
        life.close()
        checker.check_all(killed, told, f"killed {where}; went on and sealed")


def test_a_crash_at_any_call_while_the_files_of_three_lives_are_sealed_takes_nothing_away() -> None:
    disk, history, checker = SimulatedDisk(), History(), Checker(seeds=2)
    for sequence in range(1, 4):
        Life(disk, history).send(sequence)
        disk = disk.crash(Survival.NOTHING, Random(0))
    moments = watched(disk, history)
    found = start(disk)
    assert len(found.unsealed) == 3
    seal_found(disk, found)
    for where, then, told in moments:
        checker.check_all(then, told, where)
    assert Manifest(FILES.segments, disk).count == 3
    assert check(disk, history) == 3


# A disk that fails.


def calls(kinds: frozenset[CallKind]) -> int:
    """How many calls of these kinds there are in a life."""
    disk = FaultyDisk(SimulatedDisk())
    live(disk, History(), WRITES)
    return sum(call.kind in kinds for call in disk.trace)


@pytest.mark.parametrize("kinds", [SYNCS, EVERY_KIND - SYNCS], ids=["syncs", "other calls"])
def test_whichever_call_fails_nothing_told_is_lost_and_the_next_life_ends_with_every_write_once(
    kinds: frozenset[CallKind],
) -> None:
    checker = Checker(seeds=2)
    for nth in range(1, calls(kinds) + 1):
        disk, history = SimulatedDisk(), History()
        with pytest.raises(OSError, match="Input/output error"):
            live(FaultyDisk(disk, [Fault(kinds, nth)]), history, WRITES)
        checker.check_all(disk, history, f"call {nth} failed")
        again = disk.crash(Survival.CACHE, Random(0))
        live(again, history, WRITES)
        checker.check_all(again, history, f"call {nth} failed; went on")
        assert check(again, history) == WRITES


@pytest.mark.slow
def test_a_sync_that_fails_and_then_a_power_cut_during_the_next_start_take_nothing_away() -> None:
    checker = Checker(seeds=2)
    for nth in range(1, calls(SYNCS) + 1):
        disk, history = SimulatedDisk(), History()
        with pytest.raises(OSError, match="Input/output error"):
            live(FaultyDisk(disk, [Fault(SYNCS, nth)]), history, WRITES)
        again = disk.crash(Survival.CACHE, Random(0))
        during_start = watched(again, history)
        start_and_seal(again)
        for where, then, _ in during_start:
            checker.check_all(then, history, f"sync {nth} failed; started again, {where}")


# What such crashes have shown, one by one.


def test_a_line_of_the_manifest_that_lost_its_middle_is_cut_if_nothing_followed_from_it() -> None:
    disk, history = SimulatedDisk(), History()
    live(disk, history, 6)
    (path,) = [FILES.segments / name for name in disk.list(FILES.segments) if name.endswith(".jsonl")]
    whole = disk.read(path)
    disk.store(path, whole + b'{"shard":0,"number"' + bytes(512) + b'sha256"}\n')
    assert Manifest(FILES.segments, disk).count == 2
    assert check(disk, history) == 6
    assert disk.read(path) == whole


def test_a_start_that_is_refused_changes_nothing_not_even_what_is_superfluous(flushed: SimulatedDisk) -> None:
    flushed.store(FILES.log / "left.tmp", b"over")
    damaged = bytearray(flushed.read(FIRST))
    damaged[HEADER_BYTES + 5] ^= 1
    assert is_refused(with_log(flushed, bytes(damaged)))
