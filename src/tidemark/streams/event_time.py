"""Event time at arrival, from the definitions: each source's own disorder and idle timeout (T2).

Belongs here: from definitions to the rules that a shard follows. Definitions of one source agree on both, or they would
not have been loaded.
"""

from tidemark.model.event_time_rules import Stream, StreamRule
from tidemark.model.settings import Settings
from tidemark.storage.home import Home
from tidemark.streams.load import find_streams, load_streams
from tidemark.streams.model import Streams


def rules_of(streams: Streams, settings: Settings) -> dict[Stream, StreamRule]:
    """Namespace and kind → its rule, for the sources that have one of their own; the settings apply to the others."""
    found: dict[Stream, StreamRule] = {}
    for stream in streams.streams.values():
        if stream.disorder_us is not None or stream.idle_us is not None:
            found[stream.namespace, stream.kind.value] = StreamRule(
                settings.disorder_ms * 1_000 if stream.disorder_us is None else stream.disorder_us,
                settings.idle_timeout_ms * 1_000 if stream.idle_us is None else stream.idle_us,
            )
    return found


def read_rules(home: Home) -> dict[Stream, StreamRule]:
    """The rules of a home's own definitions, as they are now; empty without definitions."""
    return rules_of(load_streams(find_streams(home)), home.settings)
