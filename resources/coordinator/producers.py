"""What a shard knows of its producers: how far each has numbered its writes, and which instance may write (Q2).

Belongs here: marks, recent epochs for quick answers to retries, and fencing. Marks are exact for ever; an epoch that
is no longer in memory is looked up in the segments by whoever asks.
"""

from collections import OrderedDict

from msgspec import Struct

from resources.coordinator.errors import ProducerFencedError, SequenceGapError

# A producer in trouble repeats its last few writes; older ones are answered from the segments.
REMEMBERED_WRITES = 1_000
# Whole writes are refused for good when they could never fit: a mistake that a producer does not make often.
REMEMBERED_REFUSALS = 100


class ProducerState(Struct):
    """One producer's standing, as it is saved."""

    instance: int = 0
    mark: int = 0  # last sequence taken or refused for good; 0 means nothing yet
    refused: dict[int, str] = {}  # sequences refused for good, with the reason: the newest of them


class Producers:
    """All producers of one shard."""

    def __init__(self, states: dict[str, ProducerState] | None = None) -> None:
        self._states = states or {}
        self._recent: dict[str, OrderedDict[int, int]] = {}

    def open(self, producer: str) -> int:
        """A new instance of `producer`; every older one is fenced out."""
        state = self._states.setdefault(producer, ProducerState())
        state.instance += 1
        return state.instance

    def reopened(self, producer: str, instance: int) -> None:
        """Recovery: the log says that this instance was opened."""
        self._states.setdefault(producer, ProducerState()).instance = instance

    def mark(self, producer: str) -> int:
        """Last sequence taken from `producer`; 0 if none."""
        state = self._states.get(producer)
        return state.mark if state else 0

    def is_retry(self, producer: str, instance: int, sequence: int) -> bool:
        """Whether this write was taken before; raises if it must not be taken at all."""
        state = self._states.get(producer) or ProducerState()
        if instance < state.instance:
            raise ProducerFencedError(producer, instance, state.instance)
        if sequence <= state.mark:
            return True
        if sequence != state.mark + 1:
            raise SequenceGapError(producer, sequence, state.mark + 1)
        return False

    def advance(self, producer: str, sequence: int) -> None:
        """The write was taken. In the log a refusal may stand before the writes that it came behind."""
        state = self._states.get(producer)
        if state is None:
            state = self._states[producer] = ProducerState()
        state.mark = max(state.mark, sequence)

    def remember(self, producer: str, sequence: int, epoch: int, sealed_to: int) -> None:
        """The write's epoch, kept at least until it can be found in a segment: those below `sealed_to` can."""
        recent = self._recent.get(producer)
        if recent is None:
            recent = self._recent[producer] = OrderedDict()
        recent[sequence] = epoch
        while len(recent) > REMEMBERED_WRITES and next(iter(recent.values())) < sealed_to:
            recent.popitem(last=False)

    def refused(self, producer: str, sequence: int, why: str) -> None:
        """The write was refused for good: its number is used up, and the next one is expected."""
        state = self._states.setdefault(producer, ProducerState())
        state.mark = max(state.mark, sequence)
        state.refused[sequence] = why
        while len(state.refused) > REMEMBERED_REFUSALS:
            del state.refused[min(state.refused)]

    def refusal(self, producer: str, sequence: int) -> str | None:
        """Why a write was refused for good, if it was and that is remembered."""
        state = self._states.get(producer)
        return state.refused.get(sequence) if state else None

    def recent_epoch(self, producer: str, sequence: int) -> int | None:
        """First epoch of a recent write."""
        return self._recent.get(producer, OrderedDict()).get(sequence)

    def snapshot(self) -> dict[str, ProducerState]:
        """A copy of all standings."""
        return {
            name: ProducerState(state.instance, state.mark, dict(state.refused)) for name, state in self._states.items()
        }
