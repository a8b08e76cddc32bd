"""Event-time watermarks of one shard, per stream (namespace and kind), over its producers (T2).

Belongs here: when a watermark moves. A watermark of T promises that no further event older than T is expected; it
only rises. Refused deltas never count, so a wild clock cannot move it.
"""

from msgspec import Struct

from resources.settings import Settings

Stream = tuple[str, str]  # namespace, kind


class ProducerClock(Struct):
    """How far one producer has come in one stream."""

    max_event_us: int
    last_received_us: int


class StreamState(Struct):
    """One stream's watermark and the producers behind it, as it is saved."""

    watermark_us: int | None = None
    producers: dict[str, ProducerClock] = {}


class Watermarks:
    """The watermarks of all streams of a shard."""

    def __init__(self, settings: Settings, states: dict[str, StreamState] | None = None) -> None:
        self._disorder_us = settings.disorder_ms * 1_000
        self._idle_us = settings.idle_timeout_ms * 1_000
        self._states: dict[Stream, StreamState] = {_stream(name): state for name, state in (states or {}).items()}

    def stamp(self, stream: Stream, now_us: int) -> int | None:
        """The watermark in force for a write that arrives now, before anything in it counts (T4)."""
        state = self._states.get(stream)
        return self._advance(state, now_us) if state else None

    def observe(self, stream: Stream, producer: str, max_event_us: int, now_us: int) -> None:
        """A producer's accepted deltas of one write, by their greatest event time."""
        state = self._states.setdefault(stream, StreamState())
        clock = state.producers.get(producer)
        if clock is None:
            state.producers[producer] = ProducerClock(max_event_us, now_us)
        else:
            clock.max_event_us = max(clock.max_event_us, max_event_us)
            clock.last_received_us = max(clock.last_received_us, now_us)
        self._advance(state, now_us)

    def _advance(self, state: StreamState, now_us: int) -> int | None:
        active = [
            clock.max_event_us for clock in state.producers.values() if now_us - clock.last_received_us < self._idle_us
        ]
        if active:
            # Never above now minus disorder: a producer whose clock is ahead promises nothing for the others.
            candidate = min(*active, now_us) - self._disorder_us
            state.watermark_us = candidate if state.watermark_us is None else max(state.watermark_us, candidate)
        return state.watermark_us

    def restore(self, stream: Stream, watermark_us: int | None) -> None:
        """Recovery: the log says that this stamp was given."""
        state = self._states.setdefault(stream, StreamState())
        if watermark_us is not None:
            state.watermark_us = max(
                watermark_us, state.watermark_us if state.watermark_us is not None else watermark_us
            )

    def current(self) -> dict[str, int]:
        """`namespace/kind` → watermark, for streams that have one."""
        return {
            _name(stream): state.watermark_us
            for stream, state in self._states.items()
            if state.watermark_us is not None
        }

    def snapshot(self) -> dict[str, StreamState]:
        """A copy of everything, to be saved."""
        return {
            _name(stream): StreamState(
                state.watermark_us,
                {
                    name: ProducerClock(clock.max_event_us, clock.last_received_us)
                    for name, clock in state.producers.items()
                },
            )
            for stream, state in self._states.items()
        }


def _name(stream: Stream) -> str:
    return "/".join(stream)


def _stream(name: str) -> Stream:
    namespace, _, kind = name.partition("/")
    return namespace, kind
