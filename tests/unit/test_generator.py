"""The demo's day: repeatable, in order of arrival, and with everything in it that the platform must cope with."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from orchestration.demo.generator import DAY_START_US, DAY_VERSION, PAST_HOURS_US, Fate, Write, generate
from orchestration.demo.malformed import SORTS
from orchestration.demo.traffic import PROFILES, SHOP, SHOP_DIMENSION
from tidemark.door.decode import decode, original_bytes
from tidemark.model.deltas import Delta, Kind, Reason, Signal, Vector, Verdict
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.operations import Operation
from tidemark.model.settings import NAME_PATTERN, Namespace, Settings
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, to_us
from tidemark.verdicts.checks import check

SETTINGS = Settings(namespaces={SHOP: Namespace(dimension=SHOP_DIMENSION)})


@pytest.fixture(scope="module")
def day() -> list[Write]:
    return list(generate(seed=7, deltas=6_000))


def digest(writes: Iterable[Write]) -> str:
    found = hashlib.sha256()
    for write in writes:
        head = (write.arrival_us, write.producer, write.sequence, write.is_retry, write.fates)
        found.update(msgspec.json.encode(head))
        for item in write.deltas:
            found.update(original_bytes(item))
    return found.hexdigest()


def first_sendings(day: list[Write]) -> list[Write]:
    return [write for write in day if not write.is_retry]


def planted(deltas: int) -> Counter[Fate]:
    """How many deltas of a day of this size were planted of each fate."""
    return Counter(fate for write in first_sendings(list(generate(seed=1, deltas=deltas))) for fate in write.fates)


def good_deltas(day: list[Write]) -> list[Delta]:
    pairs = [pair for write in first_sendings(day) for pair in zip(write.deltas, write.fates, strict=True)]
    return [item for item, fate in pairs if fate is Verdict.ACCEPTED and isinstance(item, Delta)]


def test_same_seed_and_size_give_the_same_bytes() -> None:
    assert digest(generate(seed=3, deltas=800)) == digest(generate(seed=3, deltas=800))


@pytest.mark.parametrize(("seed", "deltas"), [(4, 800), (3, 801)])
def test_another_seed_or_size_gives_another_day_whose_names_never_meet_the_first(seed: int, deltas: int) -> None:
    first, second = list(generate(seed=3, deltas=800)), list(generate(seed=seed, deltas=deltas))
    assert {write.producer for write in first}.isdisjoint(write.producer for write in second)
    ids = [{delta.delta_id for delta in good_deltas(writes)} for writes in (first, second)]
    assert ids[0].isdisjoint(ids[1])


@pytest.mark.parametrize("deltas", [100, 999, 6_000])
def test_the_day_has_as_many_deltas_as_asked_for(deltas: int) -> None:
    assert sum(planted(deltas).values()) == deltas


def test_writes_come_in_order_of_arrival_within_the_day(day: list[Write]) -> None:
    arrivals = [write.arrival_us for write in day]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= DAY_START_US
    assert arrivals[-1] < DAY_START_US + DAY_US + 20 * MINUTE_US


def test_each_producer_numbers_its_writes_without_a_gap_and_a_retry_repeats_its_write(day: list[Write]) -> None:
    seen: dict[tuple[str, int], Write] = {}
    last: Counter[str] = Counter()
    for write in day:
        if write.is_retry:
            first = seen[write.producer, write.sequence]
            assert write.deltas == first.deltas
            assert write.arrival_us > first.arrival_us
        else:
            last[write.producer] += 1
            assert write.sequence == last[write.producer]
            seen[write.producer, write.sequence] = write
    assert any(write.is_retry for write in day)
    assert len(last) == len(PROFILES)


def test_producers_have_plain_names(day: list[Write]) -> None:
    names = pa.array([write.producer for write in day] + [next(generate(seed=-5, deltas=100)).producer])
    assert pa.compute.all(pa.compute.match_substring_regex(names, NAME_PATTERN)).as_py()


@pytest.mark.parametrize("deltas", [100, 6_000])
def test_every_sort_of_malformed_delta_is_planted(deltas: int) -> None:
    fates = planted(deltas)
    assert {sort.reason for sort in SORTS} | {Verdict.ACCEPTED, Verdict.DUPLICATE, Reason.ID_REUSE} == set(fates)


def test_every_reason_that_one_delta_can_give_by_itself_has_a_sort() -> None:
    needs_others = {Reason.ID_REUSE, Reason.DUPLICATE, Reason.FINGERPRINT_COLLISION, Reason.BELOW_HORIZON}
    assert {sort.reason for sort in SORTS} == set(Reason) - needs_others


def test_each_delta_is_refused_for_the_planted_reason_and_every_other_is_sound(day: list[Write]) -> None:
    needs_others = {Verdict.DUPLICATE, Reason.ID_REUSE, Verdict.ACCEPTED}
    for write in first_sendings(day):
        batch = decode(write.deltas, SeriesNames())
        refusals = dict(batch.refusals)
        skip = np.zeros(len(write.deltas), dtype=np.bool_)
        skip[list(refusals)] = True
        received = np.full(len(write.deltas), write.arrival_us)
        refusals |= check(batch.columns, received, SETTINGS, skip)
        expected = {row: fate for row, fate in enumerate(write.fates) if fate not in needs_others}
        assert {row: refusal.reason for row, refusal in refusals.items()} == expected


def test_a_repeated_or_reused_identity_was_sent_before_with_the_same_or_other_content(day: list[Write]) -> None:
    sent: dict[tuple[str, str, int], Delta] = {}
    copies = Counter[str]()
    for write in first_sendings(day):
        for item, fate in zip(write.deltas, write.fates, strict=True):
            if not isinstance(item, Delta) or fate not in {Verdict.ACCEPTED, Verdict.DUPLICATE, Reason.ID_REUSE}:
                continue
            moment = to_us(item.event_ts) if isinstance(item.event_ts, datetime) else item.event_ts
            identity = (item.namespace, item.delta_id, moment)
            if fate is Verdict.ACCEPTED:
                assert identity not in sent
                sent[identity] = item
                continue
            first = sent[identity]
            payloads = [(delta.vector, delta.sample, delta.signal) for delta in (first, item)]
            assert (payloads[0] == payloads[1]) is (fate is Verdict.DUPLICATE)
            copies[fate] += 1
    assert len(copies) == 2


def test_the_day_has_all_kinds_all_operations_parents_clocks_retractions_and_skewed_keys(day: list[Write]) -> None:
    deltas = good_deltas(day)
    vectors = [delta.vector for delta in deltas if isinstance(delta.vector, Vector)]
    signals = [delta.signal for delta in deltas if isinstance(delta.signal, Signal)]
    assert {delta.kind for delta in deltas} == set(Kind)
    assert {vector.op for vector in vectors} == set(Operation)
    ids = {delta.delta_id: delta.vector.vector_id for delta in deltas if isinstance(delta.vector, Vector)}
    assert all(ids[vector.parent_id] == vector.vector_id for vector in vectors if vector.parent_id)
    assert any(vector.parent_id for vector in vectors)
    assert any(vector.clock for vector in vectors)
    assert any(vector.metadata for vector in vectors)
    assert any(signal.count < 0 for signal in signals)
    assert any(round(signal.weight, 5) != signal.weight for signal in signals)
    busiest = Counter(signal.entity_id for signal in signals).most_common(1)[0][1]
    assert busiest > 20 * len(signals) / 2_000


def test_deltas_come_out_of_order_late_ahead_and_from_the_week_before(day: list[Write]) -> None:
    ages = []
    for write in first_sendings(day):
        for item, fate in zip(write.deltas, write.fates, strict=True):
            if fate is Verdict.ACCEPTED and isinstance(item, Delta):
                moment = to_us(item.event_ts) if isinstance(item.event_ts, datetime) else item.event_ts
                ages.append((write.arrival_us - moment, moment))
    assert min(age for age, _ in ages) < 0
    assert sum(age > 5 * MINUTE_US for age, _ in ages) >= len(ages) // 50
    # Monday is the day itself, so everything before it is in the week before.
    assert any(moment < DAY_START_US for _, moment in ages)
    assert all(moment >= min(PAST_HOURS_US) for _, moment in ages)


def test_the_day_is_the_one_of_its_version() -> None:
    # If this fails on purpose, raise DAY_VERSION: homes that have the day of before must not take it for the new one.
    assert DAY_VERSION == 1
    assert digest(generate(seed=7, deltas=1_000)) == "e895bc5c7a180b66242513005d21cb6e87627ae6cf524583b20b5a82c8d02d59"


def test_every_hour_of_the_day_has_a_write_so_that_hours_are_one_unbroken_row(day: list[Write]) -> None:
    hours = {(write.arrival_us - DAY_START_US) // HOUR_US for write in first_sendings(day)}
    assert hours == set(range(24))
