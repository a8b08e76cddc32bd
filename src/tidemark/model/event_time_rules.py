"""The rules of event time that a shard goes by: how far out of order each stream is sent, and when it counts as idle.

Belongs here: the rules as values, as the log contains them. `event_time/watermarks.py` moves watermarks by them; they
are set in `platform.toml` and, for single streams, in the stream definitions.

Rules may change between two starts of a shard, and a stamp must be the same when its log is read again. So the log says
which rules are in force, from their message on: a replay uses those, and never today's settings.
"""

from collections.abc import Mapping

from msgspec import Struct

from tidemark.model.settings import Settings

Stream = tuple[str, str]  # namespace, kind


class StreamRule(Struct, frozen=True):
    """The rules of one stream (T2)."""

    disorder_us: int
    idle_us: int


class EventTimeRules(Struct, frozen=True):
    """Everything that a watermark depends on besides the deltas."""

    step_us: int
    events: int
    default: StreamRule
    streams: dict[str, StreamRule] = {}  # "namespace/kind" → its own rules

    @classmethod
    def of(cls, settings: Settings, streams: Mapping[Stream, StreamRule] | None = None) -> "EventTimeRules":
        """The rules of the settings, and those of streams that have their own."""
        return cls(
            step_us=settings.watermark_ms * 1_000,
            events=settings.watermark_events,
            default=StreamRule(settings.disorder_ms * 1_000, settings.idle_timeout_ms * 1_000),
            # In order, so that the same definitions are the same message.
            streams={stream_name(stream): rule for stream, rule in sorted((streams or {}).items())},
        )

    def rule(self, stream: Stream) -> StreamRule:
        """The rules of this stream."""
        return self.streams.get(stream_name(stream), self.default)


def stream_name(stream: Stream) -> str:
    """`namespace/kind`, as manifests and snapshots name it."""
    return "/".join(stream)


def parse_stream(name: str) -> Stream:
    """The stream behind `namespace/kind`."""
    namespace, _, kind = name.rpartition("/")
    return namespace, kind
