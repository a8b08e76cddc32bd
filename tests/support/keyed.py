"""A coordinator of another kind, in memory: keys and values, the last write wins (C1).

Belongs here: a buffer and a flusher of twenty lines each, on the same engine as the platform's log. It is an example
of what a new kind of write has to bring, and a proof that the engine knows nothing of deltas.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tidemark.coordinator.bounds import Tracker
from tidemark.coordinator.engine import Engine, Ticket
from tidemark.coordinator.epochs import Epochs
from tidemark.model.settings import BoundSettings

Pairs = Mapping[str, str]
GROUP_BYTES = 1024 * 1024


class KeyedBuffer:
    """Keys and values since the last freeze."""

    def __init__(self) -> None:
        self._pairs: dict[str, str] = {}

    def apply(self, epoch: int, write: Pairs) -> None:
        self._pairs.update(write)

    def is_empty(self) -> bool:
        return not self._pairs

    def freeze(self) -> Pairs:
        frozen, self._pairs = self._pairs, {}
        return MappingProxyType(frozen)


class KeyedFlusher:
    """All keys and values. A snapshot is a dictionary that nobody changes any more."""

    def __init__(self) -> None:
        self._snapshot: Pairs = {}

    def persist(self, frozen: Sequence[Pairs]) -> Pairs:
        merged = dict(self._snapshot)
        for part in frozen:
            merged.update(part)
        self._snapshot = MappingProxyType(merged)
        return self._snapshot


class KeyedCoordinator:
    """Keys and values with epochs. It has no thread: `flush` does the work."""

    def __init__(self, bounds: BoundSettings | None = None) -> None:
        self._flusher = KeyedFlusher()
        self.engine: Engine[Pairs, Pairs, Pairs] = Engine(
            KeyedBuffer(), {}, Epochs(), Tracker(bounds or BoundSettings()), name=0, group_bytes=GROUP_BYTES
        )

    def write(self, pairs: Pairs, producer: str = "any") -> Ticket[Pairs]:
        """Take pairs in."""
        size = sum(len(key) + len(value) for key, value in pairs.items())
        return self.engine.submit(pairs, size=size, deltas=len(pairs), producer=producer, now_us=0)

    def flush(self) -> int:
        """Make everything that was taken visible to plain readers; gives the last epoch of it."""
        while self.engine.has_writes:
            group = self.engine.take()
            self.engine.publish(group, self._flusher.persist(group.frozen))
        return self.engine.flushed_epoch

    def get(self, key: str) -> str | None:
        """What a plain reader sees."""
        return self.engine.snapshot.get(key)

    def get_own(self, key: str) -> str | None:
        """What a reader of its own writes sees (C11)."""
        view = self.engine.view()
        found = [part[key] for part in (view.snapshot, *view.frozen) if key in part]
        return found[-1] if found else None
