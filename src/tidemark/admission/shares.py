"""Which class may take how much of the room in a shard: guaranteed shares, and unused ones lent out (A3).

Belongs here: what is held by class, and whether one more write fits. A class below its share is always let in; one
above it only while there is room that nobody uses. What a class has borrowed is not taken back: it goes to the disk
within milliseconds. So half of the room is lent and the other half is kept for those who come back for their share:
whoever has borrowed everything, every other class still gets all that was guaranteed to it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from tidemark.admission.arriving import Load
from tidemark.model.admission_settings import AdmissionSettings, ClassName

# Of the room that the shard has.
LENT = 0.5
# Shares are decimal fractions, which are not exact.
_NEARLY = 1e-9

ClassKey: TypeAlias = ClassName | None  # None: streams without a class


class Held(NamedTuple):
    """What is in the shard and not flushed."""

    deltas: int = 0
    bytes: int = 0

    def plus(self, other: "Held") -> "Held":
        """Both together."""
        return Held(self.deltas + other.deltas, self.bytes + other.bytes)

    def minus(self, other: "Held") -> "Held":
        """Without the other."""
        return Held(self.deltas - other.deltas, self.bytes - other.bytes)

    def of(self, load: Load) -> float:
        """As a share of what may be held altogether."""
        return max(self.deltas / (load.most_deltas * LENT), self.bytes / (load.most_bytes * LENT))


def guaranteed(settings: AdmissionSettings) -> dict[ClassKey, float]:
    """The share of each class; streams without one have what the classes leave."""
    shares: dict[ClassKey, float] = {name: getattr(settings.classes, name).share for name in ClassName}
    return {**shares, None: max(0.0, 1.0 - sum(shares.values()))}


def exceeded(
    shares: Mapping[ClassKey, float], held: Mapping[ClassKey, Held], wanted: Iterable[ClassKey], load: Load
) -> list[ClassKey]:
    """The classes among the wanted ones that have their share already, while there is nothing to lend."""
    total = Held(sum([each.deltas for each in held.values()]), sum([each.bytes for each in held.values()]))
    if total.of(load) < 1.0 - _NEARLY:
        return []
    return [name for name in wanted if held.get(name, Held()).of(load) >= shares[name] - _NEARLY]
