"""Good deltas of a made-up shop and a made-up fleet of vans: which producer sends what, about which keys.

Belongs here: the producers and the payloads. `generator.py` decides when deltas are sent, and which ones twice, late or
spoiled. Pure: all chance comes from the `Random` argument.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import accumulate
from random import Random

from msgspec import structs

from tidemark.model.deltas import Delta, Kind, Priority, Sample, Signal, Source, Vector
from tidemark.model.operations import RULES, Operation
from tidemark.model.timegrid import from_us

SHOP = "shop"
FLEET = "fleet"
# Short enough to read in a terminal, long enough that a wrong one is noticed.
SHOP_DIMENSION = 12


@dataclass(frozen=True)
class Profile:
    """A producer: what it sends, its share of the day, and how far out of order it sends."""

    name: str
    kind: Kind
    share: int
    disorder_s: float


PROFILES = (
    Profile("web", Kind.SIGNAL, 34, 10),
    Profile("app", Kind.SIGNAL, 22, 90),  # phones in tunnels
    Profile("checkout", Kind.SIGNAL, 8, 3),
    Profile("embedder", Kind.VECTOR, 15, 20),
    Profile("vans_north", Kind.SAMPLE, 12, 5),
    Profile("vans_south", Kind.SAMPLE, 9, 40),
)

_SIGNALS = ("view", "like", "share", "cart", "buy")
_SIGNAL_WEIGHTS = (70, 12, 4, 9, 5)
_SENSORS = ("temperature", "fuel", "speed", "door")
# How often each operation changes an existing vector; an operation that is not named is sent now and then.
_SHARES = {
    Operation.REPLACE: 20,
    Operation.SET_DIMS: 25,
    Operation.ADD_DIMS: 25,
    Operation.SCALE: 10,
    Operation.OFFSET: 10,
    Operation.CREATE: 6,
    Operation.DELETE: 4,
}
_OPERATION_WEIGHTS = {**_SHARES, **{operation: 5 for operation in Operation if operation not in _SHARES}}
_HARBOUR_TIME = timezone(timedelta(hours=1))
_TITLES = ("chair", "lamp", "Käseglocke", "椅子", 'table 36"', "salt/pepper set")


class _Zipf:
    """Keys: a few are busy, most are rare."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self._weights = list(accumulate(1 / rank**1.05 for rank in range(1, len(keys) + 1)))

    def draw(self, rng: Random) -> str:
        return rng.choices(self.keys, cum_weights=self._weights)[0]


class Traffic:
    """Makes good deltas. It remembers each vector's last delta, so that later ones can name it as their parent."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        # Ids are the producer's own words: spaces, quotes, slashes and umlauts are allowed in them.
        self._items = _Zipf([f"item-{n:04d}" if n % 50 else f'item-{n:04d}/größe "XL"' for n in range(1, 2_001)])
        self._vectors = _Zipf([f"item-{n:04d}" for n in range(1, 601)])
        self._vans = _Zipf([f"van-{n:03d}" for n in range(1, 121)])
        self._last: dict[str, str] = {}
        self._clocks: dict[str, int] = {}

    def make(self, profile: Profile, kind: Kind, *, delta_id: str, event_us: int) -> Delta:
        """A good delta of this producer, which is not remembered."""
        delta = Delta(
            namespace=FLEET if kind is Kind.SAMPLE else SHOP,
            kind=kind.value,
            delta_id=delta_id,
            event_ts=self._written(event_us),
        )
        if kind is Kind.SIGNAL:
            delta.signal = self._signal(profile)
        elif kind is Kind.SAMPLE:
            delta.sample = self._sample(profile)
        else:
            delta.vector = self._vector(profile)
        self._dress(delta)
        return delta

    def remember(self, delta: Delta) -> None:
        """The delta was sent and is good: a later one of the same vector may name it."""
        if isinstance(delta.vector, Vector):
            self._last[delta.vector.vector_id] = delta.delta_id
            self._clocks[delta.vector.vector_id] = self._clocks.get(delta.vector.vector_id, 0) + 1

    def with_other_content(self, delta: Delta) -> Delta:
        """The same delta with another payload about the same key, which differs from every payload that was sent."""
        if isinstance(delta.vector, Vector):
            # No honest offset is that large.
            amount = 1000 + self._rng.random()
            other = Vector(vector_id=delta.vector.vector_id, op=Operation.OFFSET.value, amount=amount)
            return structs.replace(delta, vector=other)
        if isinstance(delta.sample, Sample):
            return structs.replace(delta, sample=structs.replace(delta.sample, value=delta.sample.value + 1))
        if isinstance(delta.signal, Signal):
            return structs.replace(delta, signal=structs.replace(delta.signal, count=delta.signal.count + 1))
        raise ValueError(f"A delta without payload was sent as a good one: {delta}")

    def _written(self, event_us: int) -> datetime | int:
        """The time in one of the forms that producers use."""
        return event_us if self._rng.random() < 0.7 else from_us(event_us).astimezone(_HARBOUR_TIME)

    def _dress(self, delta: Delta) -> None:
        draw = self._rng.random()
        if draw < 0.02:
            delta.source, delta.origin = Source.REPLICA.value, "harbour"
        elif draw < 0.03:
            delta.source = Source.IMPORT.value
        elif draw < 0.08:
            delta.priority = self._rng.choice([Priority.CRITICAL, Priority.HIGH, Priority.LOW]).value

    def _signal(self, profile: Profile) -> Signal:
        rng = self._rng
        name = "buy" if profile.name == "checkout" else rng.choices(_SIGNALS, _SIGNAL_WEIGHTS)[0]
        signal = Signal(entity_id=self._items.draw(rng), signal=name)
        if name == "buy":
            signal.weight = round(rng.uniform(0.5, 900), 6)
            if rng.random() < 0.06:
                # An article was sent back: a retraction takes away the purchase's count.
                signal.count, signal.weight = -1, -signal.weight
        elif name == "view" and rng.random() < 0.2:
            signal.count = rng.randint(2, 9)
        return signal

    def _sample(self, profile: Profile) -> Sample:
        rng = self._rng
        region = profile.name.removeprefix("vans_") if profile.kind is Kind.SAMPLE else "depot"
        labels = {"van": self._vans.draw(rng), "sensor": rng.choice(_SENSORS), "region": region}
        return Sample(labels=labels, value=round(rng.gauss(20, 8), 3))

    def _vector(self, profile: Profile) -> Vector:
        rng = self._rng
        vector_id = self._vectors.draw(rng)
        last = self._last.get(vector_id)
        op = rng.choices(list(_OPERATION_WEIGHTS), list(_OPERATION_WEIGHTS.values()))[0] if last else Operation.CREATE
        vector = Vector(vector_id=vector_id, op=op.value)
        needs = RULES[op].needs
        if "indices" in needs:
            vector.indices = sorted(rng.sample(range(SHOP_DIMENSION), rng.randint(1, 4)))
        if "values" in needs:
            vector.values = [round(rng.uniform(-1, 1), 4) for _ in vector.indices or range(SHOP_DIMENSION)]
        if "factor" in needs:
            vector.factor = round(rng.uniform(0.5, 1.5), 4)
        if "amount" in needs:
            vector.amount = round(rng.uniform(-0.1, 0.1), 4)
        if last and rng.random() < 0.5:
            vector.parent_id = last
        if rng.random() < 0.3:
            vector.clock = {profile.name: self._clocks.get(vector_id, 0) + 1}
        if rng.random() < 0.2:
            vector.metadata = {"title": rng.choice(_TITLES), "draft": None}
        return vector
