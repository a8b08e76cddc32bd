"""A producer's numbers make its retries exact for ever (Q2)."""

import pytest

from resources.coordinator.errors import ProducerFencedError, SequenceGapError
from resources.coordinator.producers import REMEMBERED_WRITES, Producers


def take(producers: Producers, sequence: int, epoch: int, sealed_to: int = 0) -> None:
    producers.advance("web", sequence)
    producers.remember("web", sequence, epoch, sealed_to)


def test_a_number_at_or_below_the_mark_is_a_retry() -> None:
    producers = Producers()
    instance = producers.open("web")
    assert not producers.is_retry("web", instance, 1)
    take(producers, 1, epoch=7)
    assert producers.is_retry("web", instance, 1)
    assert producers.recent_epoch("web", 1) == 7


def test_a_gap_is_refused_with_the_expected_number() -> None:
    producers = Producers()
    instance = producers.open("web")
    with pytest.raises(SequenceGapError, match="but 1 is next") as refused:
        producers.is_retry("web", instance, 3)
    assert refused.value.expected == 1


def test_a_newer_instance_fences_the_older() -> None:
    producers = Producers()
    old, new = producers.open("web"), producers.open("web")
    with pytest.raises(ProducerFencedError, match="may not write"):
        producers.is_retry("web", old, 1)
    assert not producers.is_retry("web", new, 1)


def test_marks_survive_in_a_snapshot_and_the_snapshot_does_not_move() -> None:
    producers = Producers()
    instance = producers.open("web")
    take(producers, 1, epoch=1)
    snapshot = producers.snapshot()
    take(producers, 2, epoch=2)
    restored = Producers(snapshot)
    assert restored.mark("web") == 1
    assert restored.is_retry("web", instance, 1)
    assert not restored.is_retry("web", instance, 2)


def test_only_the_last_writes_are_kept_in_memory_and_all_that_no_segment_has_yet() -> None:
    producers = Producers()
    for sequence in range(1, REMEMBERED_WRITES + 3):
        take(producers, sequence, epoch=sequence)
    assert producers.recent_epoch("web", 1) == 1, "it could be found nowhere else"
    take(producers, REMEMBERED_WRITES + 3, epoch=REMEMBERED_WRITES + 3, sealed_to=3)
    assert [producers.recent_epoch("web", sequence) for sequence in (1, 2, 3)] == [None, None, 3]


def test_a_write_refused_for_good_uses_its_number_up_and_says_why_again() -> None:
    producers = Producers()
    instance = producers.open("web")
    producers.refused("web", 1, "it is too large")
    restored = Producers(producers.snapshot())
    assert restored.is_retry("web", instance, 1)
    assert not restored.is_retry("web", instance, 2)
    assert restored.refusal("web", 1) == "it is too large"
