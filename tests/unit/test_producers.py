"""A producer's numbers make its retries exact for ever (Q2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.log.control import ProducerOpened, WriteRefused
from tidemark.log.log_rows import Writes
from tidemark.model.shard_errors import LogDamageError, ProducerFencedError, SequenceGapError, WriteFormatError
from tidemark.shard_state import producers as module
from tidemark.shard_state.producers import KEPT_REFUSALS, KEPT_WRITES, Producers, Taken


def take(producers: Producers, sequence: int, epoch: int, file: int = 1) -> None:
    producers.advance("web", sequence)
    producers.flushed("web", sequence, epoch, epoch + 1_000, file)


def saved(producers: Producers) -> Producers:
    return Producers(producers.encoded().get)


def test_a_number_at_or_below_the_mark_is_a_retry() -> None:
    producers = Producers()
    instance = producers.open("web")
    assert not producers.is_retry("web", instance, 1)
    take(producers, 1, epoch=7)
    assert producers.is_retry("web", instance, 1)
    assert producers.recent("web", 1) == Taken(7, 1_007)


def test_a_gap_is_refused_with_the_expected_number() -> None:
    producers = Producers()
    instance = producers.open("web")
    with pytest.raises(SequenceGapError, match="but 1 is next") as refused:
        producers.is_retry("web", instance, 3)
    assert refused.value.expected == 1


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
def test_numbers_begin_at_one(number: int) -> None:
    producers = Producers()
    with pytest.raises(WriteFormatError, match="Number writes from 1"):
        producers.is_retry("web", producers.open("web"), number)


def test_a_newer_instance_fences_the_older() -> None:
    producers = Producers()
    old, new = producers.open("web"), producers.open("web")
    with pytest.raises(ProducerFencedError, match="may not write"):
        producers.is_retry("web", old, 1)
    assert not producers.is_retry("web", new, 1)


def test_standings_survive_in_the_ledger_and_what_is_saved_does_not_move() -> None:
    producers = Producers()
    instance = producers.open("web")
    take(producers, 1, epoch=1)
    restored = saved(producers)
    take(producers, 2, epoch=2)
    assert restored.mark("web") == 1
    assert restored.is_retry("web", instance, 1)
    assert restored.recent("web", 1) == Taken(1, 1_001)
    assert not restored.is_retry("web", instance, 2)


@pytest.mark.parametrize("extra", [0, 1, 99, 100, 101, 250])
def test_the_newest_hundred_writes_are_known_by_epoch_and_digest(extra: int) -> None:
    producers = Producers()
    last = KEPT_WRITES + extra
    for sequence in range(1, last + 1):
        take(producers, sequence, epoch=10 * sequence)
    for found in (producers, saved(producers)):
        known = [sequence for sequence in range(1, last + 1) if found.recent("web", sequence) is not None]
        assert known == list(range(extra + 1, last + 1))
        first = found.first_recent("web")
        assert first is not None
        assert first.epoch <= 10 * (extra + 1)


def test_a_write_refused_for_good_uses_its_number_up_and_says_why_again() -> None:
    producers = Producers()
    instance = producers.open("web")
    producers.refuse("web", 1, "it is too large")
    restored = saved(producers)
    assert restored.is_retry("web", instance, 1)
    assert not restored.is_retry("web", instance, 2)
    assert restored.refusal("web", 1) == "it is too large"


def test_the_newest_refusals_are_kept() -> None:
    producers = Producers()
    for sequence in range(1, KEPT_REFUSALS + 6):
        producers.refuse("web", sequence, "too large")
    assert [producers.refusal("web", sequence) is None for sequence in (1, 5, 6)] == [True, True, False]


@given(st.lists(st.sampled_from(["open", "write", "refuse"]), max_size=40), st.integers(0, 40))
def test_what_the_log_says_brings_a_producer_to_where_the_door_had_it(steps: list[str], cut: int) -> None:
    """However much of it the ledger has, and however much is replayed."""
    door, log = Producers(), Producers()
    door.open("web")
    log.replay(ProducerOpened("web", 1), 1)
    for place, step in enumerate(steps):
        if place == cut:
            log = saved(log)
        sequence = door.mark("web") + 1
        if step == "open":
            log.replay(ProducerOpened("web", door.open("web")), 1)
        elif step == "refuse":
            door.refuse("web", sequence, "why")
            log.replay(WriteRefused("web", sequence, "why"), 1)
        else:
            take(door, sequence, epoch=place + 1)
            log.replay_writes(Writes([place + 1], ["web"], [sequence], [0], [0], [1], None, [place + 1_001]), 1)
    assert log.encoded() == door.encoded()


def test_a_write_from_before_digests_has_none() -> None:
    log = Producers()
    log.replay_writes(Writes([4], ["web"], [1], [0], [0], [1], None), 1)
    assert saved(log).recent("web", 1) == Taken(4, None)


def test_only_what_the_ledger_has_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED", 2)
    asked = []

    def stored(name: str) -> bytes | None:
        asked.append(name)
        return None

    producers = Producers(stored)
    for name, file in (("old", 1), ("young", 2)):
        producers.advance(name, 1)
        producers.flushed(name, 1, 1, 1, file)
    producers.advance("unlogged", 1)
    producers.open("unlogged")
    producers.flushed("unlogged", 1, 2, 2, 1)  # and its opening is on its way
    producers.forget(next_file=2)
    asked.clear()
    assert [producers.mark(name) for name in ("young", "unlogged")] == [1, 1]
    assert not asked
    assert producers.mark("old") == 0
    assert asked == ["old"], "the ledger is asked"


def test_a_standing_that_cannot_be_read_is_damage() -> None:
    with pytest.raises(LogDamageError, match="'web' cannot be read"):
        Producers(lambda _: b"\xff").mark("web")
