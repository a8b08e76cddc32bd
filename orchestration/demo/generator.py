"""A seeded day of deltas, as several producers would send it: skewed, out of order, repeated, late and partly wrong.

Belongs here: what is sent when, and its expected verdict. Pure: the same seed and size give the same bytes, and no
clock is read. The day is Monday 2026-03-02, UTC.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random

from msgspec import structs

from orchestration.demo.malformed import SORTS, Item, Sort
from orchestration.demo.traffic import PROFILES, Profile, Traffic
from tidemark.model.deltas import Delta, Kind, Reason, Verdict
from tidemark.model.timegrid import HOUR_US, MINUTE_US, SECOND_US, from_us, to_us

# Raise this whenever the same seed and size give another day: a home that has the old day must not take it for this.
DAY_VERSION = 1
DAY_START_US = to_us(datetime(2026, 3, 2, tzinfo=UTC))
# Hours in which a producer stood still and sent later: one on the Friday before, and the last one of the Sunday; both
# are in the week before. Few, because every hour is a partition that has to be run.
PAST_HOURS_US = (DAY_START_US - 55 * HOUR_US, DAY_START_US - HOUR_US)
# How much of the day falls into each hour: least at night, most in the evening.
_HOURS = (3, 2, 1, 1, 1, 2, 4, 6, 8, 9, 9, 10, 11, 10, 9, 9, 10, 12, 14, 16, 15, 12, 8, 5)
# Shares of the day, in thousandths, of deltas that are not simply new and on time.
_REPEATED, _REUSED, _LATE, _AHEAD, _SPOILED = 15, 4, 30, 5, 15
_RETRIED_WRITES = 30
_MAX_DISORDER_US = 5 * MINUTE_US
# Within the default clock skew of five minutes, with room for the duration of a write.
_MAX_AHEAD_US = 4 * MINUTE_US

# The expected verdict on a delta: accepted, duplicate, or the reason for which it is refused.
Fate = Verdict | Reason


@dataclass(frozen=True)
class Write:
    """One write of one producer, and the expected verdict on each of its deltas.

    A retry is the same write under the same number: it is answered with the first one's epoch and changes nothing.
    """

    arrival_us: int
    producer: str
    sequence: int
    deltas: list[Item]
    fates: tuple[Fate, ...]
    is_retry: bool = False
    has_retry: bool = False  # will be sent again later


def generate(*, seed: int, deltas: int) -> Iterator[Write]:
    """The writes of the day in order of arrival, with `deltas` deltas in all (retries of whole writes not counted).

    Names of producers contain version, seed and size, and ids of deltas contain these names: two days never share an
    identity.
    """
    suffix = f"{DAY_VERSION}_{seed}_{deltas}".replace("-", "m")
    yield from _Day(Random(suffix), suffix=suffix, size=deltas).writes()


class _Day:
    """One run of the generator: its random numbers, the deltas sent so far, and how many of each fate are left."""

    def __init__(self, rng: Random, *, suffix: str, size: int) -> None:
        self._rng = rng
        self._suffix = suffix
        self._size = size
        self._traffic = Traffic(rng)
        self._sent: dict[Kind, list[Delta]] = {kind: [] for kind in Kind}  # good ones, in order of arrival
        self._sequences: Counter[str] = Counter()
        self._ids: Counter[str] = Counter()
        self._roles = self._deal_roles()

    def writes(self) -> Iterator[Write]:
        """All writes of the day and their retries, merged by time of arrival."""
        retries: list[tuple[int, int, Write]] = []
        for number, (arrival_us, profile, count) in enumerate(self._schedule()):
            while retries and retries[0][0] <= arrival_us:
                yield heapq.heappop(retries)[2]
            # The second and third write always, so that a small day has retries too.
            has_retry = number in {1, 2} or self._rng.random() * 1000 < _RETRIED_WRITES
            write = replace(self._write(arrival_us, profile, count), has_retry=has_retry)
            yield write
            if has_retry:
                again_us = arrival_us + int(self._rng.uniform(SECOND_US, 20 * MINUTE_US))
                retry = replace(write, arrival_us=again_us, is_retry=True, has_retry=False)
                heapq.heappush(retries, (again_us, number, retry))
        while retries:
            yield heapq.heappop(retries)[2]

    def _deal_roles(self) -> list[str | Sort]:
        """The fate of each delta of the day. Every sort of malformed delta is there at least once."""
        spoiled = max(len(SORTS), self._size * _SPOILED // 1000)
        roles: list[str | Sort] = [SORTS[n % len(SORTS)] for n in range(spoiled)]
        for role, share in (("repeated", _REPEATED), ("reused", _REUSED), ("late", _LATE), ("ahead", _AHEAD)):
            roles += [role] * max(1, self._size * share // 1000)
        roles = roles[: self._size]
        roles += ["plain"] * (self._size - len(roles))
        self._rng.shuffle(roles)
        return roles

    def _schedule(self) -> Iterator[tuple[int, Profile, int]]:
        """When each write arrives, its producer, and how many deltas it has."""
        typical = min(150, max(5, self._size // 40))
        counts, left = [], self._size
        while left:
            counts.append(min(left, self._rng.randint(typical * 2 // 3, typical * 4 // 3)))
            left -= counts[-1]
        # At least one write in every hour, so that the day is one unbroken row of hours.
        hours = [*range(24), *self._rng.choices(range(24), _HOURS, k=len(counts))][: len(counts)]
        arrivals = sorted(int((hour + self._rng.random()) * HOUR_US) for hour in hours)
        shares = [profile.share for profile in PROFILES]
        for number, (arrival, count) in enumerate(zip(arrivals, counts, strict=True)):
            # Each producer once at the start, so that a small day has them all.
            profile = PROFILES[number] if number < len(PROFILES) else self._rng.choices(PROFILES, shares)[0]
            yield DAY_START_US + arrival, profile, count

    def _write(self, arrival_us: int, profile: Profile, count: int) -> Write:
        producer = f"{profile.name}_{self._suffix}"
        self._sequences[producer] += 1
        made = [self._delta(self._roles.pop(), arrival_us, profile, producer) for _ in range(count)]
        return Write(
            arrival_us=arrival_us,
            producer=producer,
            sequence=self._sequences[producer],
            deltas=[item for item, _fate in made],
            fates=tuple(fate for _item, fate in made),
        )

    def _delta(self, role: str | Sort, arrival_us: int, profile: Profile, producer: str) -> tuple[Item, Fate]:
        if isinstance(role, Sort):
            delta = self._fresh(profile, role.kind, producer, arrival_us)
            return role.spoil(delta, arrival_us), role.reason
        # A producer repeats deltas of its own kind: otherwise it would take part in streams that are not its own.
        sent = self._sent[profile.kind]
        if role == "repeated" and sent:
            return self._copy(sent), Verdict.DUPLICATE
        if role == "reused" and sent:
            return self._under_used_id(sent), Reason.ID_REUSE
        event_us = {"late": self._late, "ahead": self._ahead}.get(role, lambda us: self._on_time(us, profile))(
            arrival_us
        )
        delta = self._fresh(profile, profile.kind, producer, event_us)
        self._traffic.remember(delta)
        sent.append(delta)
        return delta, Verdict.ACCEPTED

    def _fresh(self, profile: Profile, kind: Kind, producer: str, event_us: int) -> Delta:
        self._ids[producer] += 1
        return self._traffic.make(profile, kind, delta_id=f"{producer}-{self._ids[producer]:07d}", event_us=event_us)

    def _on_time(self, arrival_us: int, profile: Profile) -> int:
        disorder_us = int(self._rng.expovariate(1 / (profile.disorder_s * SECOND_US)))
        return arrival_us - min(disorder_us, _MAX_DISORDER_US)

    def _ahead(self, arrival_us: int) -> int:
        return arrival_us + int(self._rng.random() * _MAX_AHEAD_US)

    def _late(self, arrival_us: int) -> int:
        draw = self._rng.random()
        if draw < 0.6:
            return arrival_us - int(self._rng.uniform(5 * MINUTE_US, HOUR_US))
        earlier_us = arrival_us - int(self._rng.uniform(HOUR_US, 20 * HOUR_US))
        if draw < 0.85 and earlier_us >= DAY_START_US:
            return earlier_us
        return self._rng.choice(PAST_HOURS_US) + int(self._rng.random() * HOUR_US)

    def _pick(self, sent: list[Delta]) -> int:
        """Place of a delta that was sent before: half of the time just now, otherwise at any time of the day."""
        first = max(0, len(sent) - 300) if self._rng.random() < 0.5 else 0
        return self._rng.randrange(first, len(sent))

    def _copy(self, sent: list[Delta]) -> Delta:
        """The same delta again, with its time written the other way."""
        delta = sent[self._pick(sent)]
        moment = delta.event_ts
        return structs.replace(delta, event_ts=from_us(moment) if isinstance(moment, int) else to_us(moment))

    def _under_used_id(self, sent: list[Delta]) -> Delta:
        """Another delta under an identity that is taken: the same key, time and id, and other content."""
        # Taken out, so that it is not picked again: a duplicate of the first would then be "other content" to the
        # second.
        return self._traffic.with_other_content(sent.pop(self._pick(sent)))
