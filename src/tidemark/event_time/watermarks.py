"""Event-time watermarks of one shard, per stream (namespace and kind), over its producers (T1, T2).

Belongs here: when a watermark moves, as a state machine without a clock, a thread or a disk. A watermark of T promises
that no further event older than T is expected; it only rises, unless the log shows that its clock was wrong (C15). Does
not belong here: other shards (`alignment.py`), and which deltas count (`verdicts/arrival.py` passes accepted ones only,
so a refused row from the year 2099 moves nothing, D9).

The rule. A producer's own mark is its greatest event time, taken when it joins, after every `watermark_events` of its
events, and at every **step**, a multiple of `watermark_ms` since 1970. The stream's watermark is the least mark of its
active producers, never above the time at which this is computed, minus the disorder; it is computed at every step,
whenever a producer's events complete a count, and at once while there is none. Idleness is noticed at steps. When all
producers are idle, those that went idle last decide: a pause adds nothing to what they had sent.

Replay. The state has two parts, and each is a fold over the log, in its order:
- the producers' clocks depend on the accepted rows alone: per write and stream its producer, time of receipt, number of
  rows and greatest event time (`observe`). `tick`, `adopt` and `apply` neither read a clock into it nor change it.
  Steps that passed between two writes are caught up on when the second is observed, from the state after the first and
  the second's time of receipt;
- the watermark is the greatest of what the rows give, the stamps on them (`restore`) and the logged messages (`apply`).
So after any prefix of the log a replay has the state that the shard had, field by field. The rules in force are logged
too (`RulesInForce`), and a change of them takes no stamp or message back. It does not matter how the prefix was cut
into files or groups, or which part of it a snapshot covers: a fold may be interrupted anywhere. A restart forgets only
what never reached the log, namely ticks that logged nothing. And because steps lie on a grid, a tick only logs early
what the next write would have been stamped with anyway: with or without ticks, however late, the stamps are the same.
"""

import sys
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from tidemark.log.control import Cause, ClockReset, RulesInForce, WatermarkAdvanced
from tidemark.log.manifest import EventTime
from tidemark.model.event_time_rules import EventTimeRules, Stream, StreamRule, parse_stream, stream_name
from tidemark.model.settings import Settings

# A producer idle for this many idle timeouts is forgotten, however far ahead of the others it was. If it comes back
# with older events the watermark waits for it as for a new one, which is later than necessary and never wrong.
FORGOTTEN_AFTER = 100
_LONG_AGO = -sys.maxsize


class ProducerClock(Struct):
    """How far one producer has come in one stream."""

    max_event_us: int
    last_received_us: int
    mark_us: int | None = None  # how much of `max_event_us` counts already, filled in when saved; None while it is idle
    pending: int = 0  # events since the mark was taken


class StreamState(Struct):
    """One stream's watermark and its producers, as saved."""

    watermark_us: int | None = None
    logged_us: int | None = None  # the greatest watermark in the log: stamp or message
    next_look_us: int | None = None  # the first step whose time had not come at the last write
    producers: dict[str, ProducerClock] = {}
    risen_under_us: int | None = None  # the disorder in force when the watermark last rose


class _Live:
    """A stream's state, laid out for one write at a time: it looks at every producer only when something is due."""

    __slots__ = (
        "clocks",
        "disorder_us",
        "idle_us",
        "last_received_us",
        "logged_us",
        "low_us",
        "marks",
        "next_look_us",
        "risen_under_us",
        "surveyed_us",
        "watermark_us",
    )

    def __init__(self, saved: StreamState, rule: StreamRule) -> None:
        self.go_by(rule)
        self.risen_under_us = saved.risen_under_us
        self.watermark_us = saved.watermark_us
        self.logged_us = saved.logged_us
        self.next_look_us = _LONG_AGO if saved.next_look_us is None else saved.next_look_us
        self.clocks = {name: replace(clock, mark_us=None) for name, clock in saved.producers.items()}
        # The producer that sent last is never forgotten, so this needs no saving.
        self.last_received_us = max((clock.last_received_us for clock in self.clocks.values()), default=_LONG_AGO)
        # Active producers and their marks; `low_us` is always the least of these.
        self.marks = {name: clock.mark_us for name, clock in saved.producers.items() if clock.mark_us is not None}
        self.low_us = min(self.marks.values(), default=0)

    def go_by(self, rule: StreamRule) -> None:
        self.disorder_us, self.idle_us = rule.disorder_us, rule.idle_us
        self.surveyed_us: int | None = None  # the time of the last tick's survey, if no write came since; not saved

    def save(self) -> StreamState:
        return StreamState(
            watermark_us=self.watermark_us,
            logged_us=self.logged_us,
            next_look_us=None if self.next_look_us == _LONG_AGO else self.next_look_us,
            producers={name: replace(clock, mark_us=self.marks.get(name)) for name, clock in self.clocks.items()},
            risen_under_us=self.risen_under_us,
        )

    def join(self, producer: str, mark_us: int) -> None:
        self.low_us = min(self.low_us, mark_us) if self.marks else mark_us
        self.marks[producer] = mark_us

    def advance(self, producer: str, mark_us: int) -> None:
        before, self.marks[producer] = self.marks[producer], mark_us
        # Only the producer that keeps the watermark low can let it rise.
        if before == self.low_us and mark_us > before:
            self.low_us = min(self.marks.values())

    def start_again(self, at_us: int, step_us: int) -> None:
        """The clock was wrong: no receipt, event or promise counts beyond this time (C15)."""
        for clock in self.clocks.values():
            clock.max_event_us = min(clock.max_event_us, at_us)
            clock.last_received_us = min(clock.last_received_us, at_us)
        self.marks = {name: min(mark_us, at_us) for name, mark_us in self.marks.items()}
        self.low_us = min(self.marks.values(), default=0)
        self.last_received_us = min(self.last_received_us, at_us)
        self.next_look_us = min(self.next_look_us, (at_us // step_us + 1) * step_us)
        self.surveyed_us = None
        if self.watermark_us is not None:
            self.watermark_us = self.logged_us = min(self.watermark_us, at_us - self.disorder_us)
            risen_under_us = self.disorder_us if self.risen_under_us is None else self.risen_under_us
            self.risen_under_us = min(risen_under_us, at_us - self.watermark_us)

    def rise(self, watermark_us: int) -> bool:
        if self.watermark_us is not None and watermark_us <= self.watermark_us:
            return False
        self.watermark_us, self.risen_under_us = watermark_us, self.disorder_us
        return True

    def logged(self, watermark_us: int) -> None:
        """A stamp or a message in the log has this watermark."""
        self.rise(watermark_us)
        if self.logged_us is None or watermark_us > self.logged_us:
            self.logged_us = watermark_us


class Watermarks:
    """The watermarks of all streams of a shard."""

    def __init__(
        self, rules: EventTimeRules | Settings, states: Mapping[str, StreamState] | None = None, resets: int = 0
    ) -> None:
        self.resets = resets  # how many resets of the clock the log has so far (C15)
        self.rules = rules if isinstance(rules, EventTimeRules) else EventTimeRules.of(rules)
        self._streams = {
            stream: _Live(state, self.rules.rule(stream))
            for stream, state in ((parse_stream(name), state) for name, state in (states or {}).items())
        }
        self.go_by(self.rules)

    def go_by(self, rules: EventTimeRules) -> None:
        """From here on these rules are in force: promises made under others still hold."""
        self.rules, self._step_us, self._events = rules, rules.step_us, rules.events
        for stream, live in self._streams.items():
            live.go_by(rules.rule(stream))
        self._ticked_us = _LONG_AGO

    def stamp(self, stream: Stream, now_us: int) -> int | None:
        """The watermark in force for a write that arrives now, before anything in it counts (T4).

        Ask only for a write with accepted deltas of this stream: they carry the stamp into the log.
        """
        live = self._streams.get(stream)
        if live is None:
            return None
        if now_us >= live.next_look_us:
            self._catch_up(live, now_us)
        if live.watermark_us is not None:
            live.logged_us = live.watermark_us
        return live.watermark_us

    def observe(self, stream: Stream, producer: str, count: int, max_event_us: int, now_us: int) -> None:
        """A producer's accepted deltas of one write: how many, and their greatest event time."""
        live = self._streams.get(stream) or self._live(stream)
        if now_us >= live.next_look_us:
            self._catch_up(live, now_us)
        live.surveyed_us = None
        if now_us > live.last_received_us:  # noqa: PLR1730 - max() thrice doubles what a write costs here
            live.last_received_us = now_us
        clock = live.clocks.get(producer)
        if clock is None:
            clock = live.clocks[producer] = ProducerClock(max_event_us, now_us)
        else:
            if max_event_us > clock.max_event_us:  # noqa: PLR1730 - as above
                clock.max_event_us = max_event_us
            if now_us > clock.last_received_us:  # noqa: PLR1730 - as above
                clock.last_received_us = now_us
        if producer not in live.marks:
            live.join(producer, clock.max_event_us)
        clock.pending += count
        if clock.pending >= self._events or live.watermark_us is None:
            clock.pending = 0
            live.advance(producer, clock.max_event_us)
            live.rise(min(live.low_us, now_us) - live.disorder_us)

    def tick(self, now_us: int) -> list[WatermarkAdvanced]:
        """Messages to log for watermarks that rose without a write, or by the last one, and are not in the log yet.

        At most one message per stream and step, none where nothing rose.
        """
        step = self._step(now_us)
        if step <= self._ticked_us:
            return []
        self._ticked_us = step
        messages = []
        for stream, live in self._streams.items():
            cause = self._survey(live, step) or Cause.COUNT
            if live.watermark_us is not None and live.watermark_us != live.logged_us:
                live.logged_us = live.watermark_us
                messages.append(WatermarkAdvanced(*stream, live.watermark_us, cause))
        return messages

    def adopt(self, stream: Stream, watermark_us: int, now_us: int) -> WatermarkAdvanced | None:
        """Adopt the watermark that the shards active in this stream have logged; the message is to be logged.

        None if it would not rise, and if a producer has become active here meanwhile: then that one decides.
        """
        if self.active(stream, now_us):
            return None
        live = self._live(stream)
        watermark_us = min(watermark_us, now_us - live.disorder_us)
        if live.watermark_us is not None and watermark_us <= live.watermark_us:
            return None
        live.logged(watermark_us)
        return WatermarkAdvanced(*stream, watermark_us, Cause.ADOPTED)

    def apply(self, message: WatermarkAdvanced | RulesInForce | ClockReset) -> None:
        """Apply a message that is in the log, or is about to be."""
        if isinstance(message, ClockReset):
            for live in self._streams.values():
                live.start_again(message.at_us, self._step_us)
            self._ticked_us, self.resets = _LONG_AGO, message.number
            return
        if isinstance(message, RulesInForce):
            self.go_by(message.rules)
            return
        self._live((message.namespace, message.kind)).logged(message.watermark_us)

    def restore(self, stream: Stream, stamp_us: int | None) -> None:
        """Replay: apply a stamp from the log; the write's `observe` follows."""
        if stamp_us is not None:
            live = self._streams.get(stream) or self._live(stream)
            if live.logged_us is None or stamp_us > live.logged_us:
                live.logged(stamp_us)

    def active(self, stream: Stream, now_us: int) -> bool:
        """Whether any producer of the stream is not idle."""
        live = self._streams.get(stream)
        return live is not None and now_us - live.last_received_us < live.idle_us

    def active_streams(self, now_us: int) -> frozenset[str]:
        """`namespace/kind` of every stream that has a producer that is not idle."""
        return frozenset(stream_name(stream) for stream in self._streams if self.active(stream, now_us))

    def idle_from(self) -> dict[str, int]:
        """`namespace/kind` → the time from which the stream is idle here, if no producer sends before."""
        return {
            stream_name(stream): live.last_received_us + live.idle_us
            for stream, live in self._streams.items()
            if live.clocks
        }

    def reached(self, received_us: int) -> EventTime:
        """How far event time has come with everything received until then."""
        return EventTime(self.current(), self.idle_from(), received_us, self.resets)

    def latest_us(self) -> int:
        """A time that had come when the watermarks reached their values, with or without a write.

        No watermark is ever above its time less the disorder: the one in force when it rose, which may not be today's.
        """
        times = (
            live.watermark_us + (live.disorder_us if live.risen_under_us is None else live.risen_under_us)
            for live in self._streams.values()
            if live.watermark_us is not None
        )
        return max(times, default=0)

    def current(self) -> dict[str, int]:
        """`namespace/kind` → watermark in force, for streams that have one."""
        return {
            stream_name(stream): live.watermark_us
            for stream, live in self._streams.items()
            if live.watermark_us is not None
        }

    def logged(self) -> dict[str, int]:
        """`namespace/kind` → the greatest watermark among the stamps and messages so far: what others may rely on.

        It is on the disk once its group is; until then only this shard may use it.
        """
        return {
            stream_name(stream): live.logged_us for stream, live in self._streams.items() if live.logged_us is not None
        }

    def snapshot(self) -> dict[str, StreamState]:
        """A copy of everything, to be saved."""
        return {stream_name(stream): live.save() for stream, live in self._streams.items()}

    def _live(self, stream: Stream) -> _Live:
        live = self._streams.get(stream)
        if live is None:
            live = self._streams[stream] = _Live(StreamState(), self.rules.rule(stream))
        return live

    def _step(self, now_us: int) -> int:
        return now_us // self._step_us * self._step_us

    def _time(self, live: _Live, step_us: int) -> int:
        """The step, or the last time at which any producer was active: no later time can add anything.

        Between two writes fewer and fewer are active, so of several steps the last gives the greatest watermark, and
        the steps before it can be skipped.
        """
        return min(step_us, live.last_received_us + live.idle_us - 1)

    def _active_at(self, live: _Live, time_us: int) -> dict[str, int]:
        """The producers that are not idle then, with their greatest event time. Never empty, by the choice of time."""
        since = time_us - live.idle_us
        return {name: clock.max_event_us for name, clock in live.clocks.items() if clock.last_received_us > since}

    def _catch_up(self, live: _Live, now_us: int) -> None:
        """Apply the steps since the last write: everything sent counts, idle producers no longer do."""
        step = self._step(now_us)
        live.next_look_us = step + self._step_us
        for clock in live.clocks.values():
            clock.pending = 0
        if live.clocks:
            time = self._time(live, step)
            live.marks = self._active_at(live, time)
            live.low_us = min(live.marks.values())
            live.rise(min(live.low_us, time) - live.disorder_us)
            self._forget(live, time)
            if time < step:
                live.marks = {}

    def _forget(self, live: _Live, time_us: int) -> None:
        """Forget idle producers whose return could change nothing: all their events are at or below the watermark.

        While idle they do not count. Back with newer events, they count by those; back with older ones only, they keep
        the watermark where it is, whether their past is known or not. So the result is the same either way.
        """
        if len(live.marks) == len(live.clocks) or live.watermark_us is None:
            return
        promised, long_ago = live.watermark_us + live.disorder_us, time_us - FORGOTTEN_AFTER * live.idle_us
        live.clocks = {
            name: clock
            for name, clock in live.clocks.items()
            if name in live.marks or (clock.max_event_us > promised and clock.last_received_us > long_ago)
        }

    def _survey(self, live: _Live, step_us: int) -> Cause | None:
        """Raise the watermark to what `_catch_up` would find at this step; all else stays as the rows left it."""
        if step_us < live.next_look_us or not live.clocks:
            return None
        time = self._time(live, step_us)
        if time == live.surveyed_us:
            return None
        live.surveyed_us = time
        active = self._active_at(live, time)
        low = min(active.values())
        if not live.rise(min(low, time) - live.disorder_us):
            return None
        has_lost_the_lowest = any(live.clocks[name].max_event_us < low for name in live.marks if name not in active)
        return Cause.IDLE if has_lost_the_lowest else Cause.TIME
