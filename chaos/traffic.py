"""The deltas that the producers of the simulation send, and their right verdicts by the rules.

Belongs here: deltas of every kind, valid and invalid, new, repeated and with a reused id. Each has its own number as
its content, so that rows read from a disk can be told apart. Nothing here knows of a shard.
"""

import json
from random import Random
from typing import NamedTuple

from tidemark.door.decoded import Sent
from tidemark.model.timegrid import HOUR_US, SECOND_US

NAMESPACES = ("shop", "fleet")
KINDS = ("signal", "sample", "vector")
# Repeats are taken from the latest deltas: about twice as many as the shards of the simulation remember.
REPEATED_FROM = 16


class Made(NamedTuple):
    """One delta as it was sent."""

    sent: bytes
    namespace: str
    kind: str
    key: str
    delta_id: str
    event_us: int
    number: int  # its content
    is_sound: bool  # by itself; whether it is in time depends on when it arrives

    @property
    def identity(self) -> tuple[str, str, int, str]:
        """The identity of a delta (Q3). Keys of two kinds never look alike here."""
        return self.namespace, self.key, self.event_us, self.delta_id


class Write(NamedTuple):
    """One write, the same whenever it is sent again."""

    producer: str
    sequence: int
    made: tuple[Made, ...]
    priority: str

    @property
    def name(self) -> str:
        """Its name in the trace."""
        return f"{self.producer}#{self.sequence}"

    def deltas(self) -> list[bytes]:
        """The deltas in the form in which they are sent."""
        return [made.sent for made in self.made]

    def objects(self) -> list[Sent]:
        """The same, as another client would send it."""
        return [_parsed(made.sent) for made in self.made]


def _parsed(sent: bytes) -> Sent:
    try:
        found = json.loads(sent)
    except ValueError:
        return sent
    return found if isinstance(found, dict) else sent


class Traffic:
    """Makes deltas, and remembers the latest to repeat them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = 0
        self._latest: list[Made] = []

    def deltas(self, count: int, now_us: int) -> tuple[Made, ...]:
        """This many deltas, sent about now."""
        return tuple(self._delta(now_us) for _ in range(count))

    def _delta(self, now_us: int) -> Made:
        chance = self._random.random()
        if chance < 0.06:
            return self._unsound(now_us)
        if self._latest and chance < 0.24:
            copied = self._random.choice(self._latest)
            # A third of the repeats is another delta under an id that was used before.
            made = copied if self._random.random() < 0.67 else self._again(copied)
        else:
            made = self._new(now_us)
        self._latest = [*self._latest, made][-REPEATED_FROM:]
        return made

    def _new(self, now_us: int) -> Made:
        random = self._random
        kind = random.choices(KINDS, (8, 1, 1))[0]
        self._number += 1
        return _made(
            random.choice(NAMESPACES),
            kind,
            f"{kind}{random.randrange(3)}",
            f"d{self._number if random.random() < 0.9 else random.randrange(self._number + 1)}",
            self._event_us(now_us),
            self._number,
        )

    def _again(self, copied: Made) -> Made:
        self._number += 1
        return _made(copied.namespace, copied.kind, copied.key, copied.delta_id, copied.event_us, self._number)

    def _event_us(self, now_us: int) -> int:
        chance, random = self._random.random(), self._random
        if chance < 0.8:
            return now_us - random.randrange(3 * SECOND_US)
        if chance < 0.9:
            return now_us - random.randrange(48 * HOUR_US)
        # Ahead of the clock, half of them further than is allowed; and from before the platform began.
        return now_us + random.randrange(600 * SECOND_US) if chance < 0.97 else random.randrange(10**15)

    def _unsound(self, now_us: int) -> Made:
        self._number += 1
        made = self._new(now_us)
        wrong = self._random.choice(
            (
                b'{"namespace": "shop", "kind":',
                b'{"kind": "smell", "number": %d}' % self._number,
                made.sent.replace(b'"delta_id"', b'"id"'),
                made.sent.replace(made.namespace.encode(), b"../shop"),
            )
        )
        return made._replace(sent=wrong, is_sound=False)


def _made(namespace: str, kind: str, key: str, delta_id: str, event_us: int, number: int) -> Made:
    payload: dict[str, object]
    if kind == "signal":
        payload = {"entity_id": key, "signal": "view", "count": number}
    elif kind == "sample":
        payload = {"labels": {"series": key}, "value": float(number)}
    else:
        payload = {"vector_id": key, "op": "offset", "amount": float(number)}
    delta = {"namespace": namespace, "kind": kind, "delta_id": delta_id, "event_ts": event_us, kind: payload}
    return Made(json.dumps(delta).encode(), namespace, kind, key, delta_id, event_us, number, is_sound=True)
