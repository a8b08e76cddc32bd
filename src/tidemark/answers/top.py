"""The entities with the highest counts of a signal, as of a minute.

Belongs here: asking, and the answer's form. Counts come from the tables and, beyond these, from the log:
`tidemark/counts/warm/restore.py`.
"""

from typing import Any, NamedTuple

from tidemark.answers.counts import this_minute
from tidemark.counts.lake import LakeCounts
from tidemark.counts.retention import gone_before, refuse_gone
from tidemark.counts.warm.cells import PLACES
from tidemark.counts.warm.counters import Ranked, ranking
from tidemark.counts.warm.restore import state_as_of
from tidemark.counts.windows import Window, on_a_minute, shown
from tidemark.model.timegrid import MINUTE_US
from tidemark.storage.home import Home

# How many entities there are, unless a question says otherwise.
ENTITIES = 10


class Top(NamedTuple):
    """The highest counts, and how far tables and log are in them."""

    namespace: str
    signal: str
    window: Window
    as_of_us: int
    ranked: list[Ranked]
    covered: dict[int, int]  # shard → the last epoch that came from the tables
    applied: dict[int, int]  # shard → the last epoch that came from the log


def ask_top(home: Home, *, namespace: str, signal: str, window: Window, number: int, as_of_us: int | None) -> Top:
    """Rank; an unknown namespace is refused. Without `as_of_us`: as of the start of the running minute."""
    as_of = this_minute() if as_of_us is None else on_a_minute(as_of_us)
    refuse_gone(window, as_of, gone_before(home))
    state = state_as_of(home, as_of // MINUTE_US, namespace=namespace, signal=signal)
    ranked = ranking(state, namespace, signal, PLACES[window], number, state.head)
    if not ranked:
        LakeCounts(home).refuse_unknown(namespace)
    return Top(namespace, signal, window, as_of, ranked, dict(state.covered), dict(state.applied))


def top_as_json(top: Top) -> dict[str, Any]:
    """The entities in order, and the reach of the answer."""
    return {
        "namespace": top.namespace,
        "signal": top.signal,
        "window": str(top.window),
        "as_of": shown(top.as_of_us),
        "top": [{"entity": each.entity, "count": each.count} for each in top.ranked],
        "reach": {
            "tables": {str(shard): epoch for shard, epoch in top.covered.items()},
            "log": {str(shard): epoch for shard, epoch in top.applied.items()},
        },
    }
