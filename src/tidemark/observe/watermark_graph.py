"""Which table is made from which, as watermarks see it: from the sources in the log to the tables at the end (T3).

Belongs here: the graph, and which graphs are refused. A source is a namespace and kind, written `shop/signal`; `deltas`
and `dead_letters` are made from all of them, a defined stream from its own. Importing this needs neither Spark nor
Dagster nor Arrow. Does not belong here: which partitions depend on each other (`assets/graph.py`). There a stream is
made from rows of deltas; here from its source, because no other can keep it low.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from tidemark.model.errors import ConfigurationError
from tidemark.streams import Streams
from tidemark.tables.tiers import TRAILING, Tier

# The built-in tables, by name: finding out how far they are needs neither their columns nor Arrow.
LOG_TABLES = ("deltas", "dead_letters")
WINDOWED_COUNTS = "windowed_counts"
# Made from vector deltas, once there are any.
VECTOR_TABLES = ("vectors", "vector_conflicts")
VECTOR_INDEX = "vector_index"
VECTOR_SOURCE = "/vector"
# Made from all streams together.
LATE_DELTAS = "late_deltas"


class GraphError(ConfigurationError):
    """The tables form no graph along which event time can flow."""


@dataclass(frozen=True)
class Graph:
    """Tables with their inputs, each after the tables it is made from."""

    inputs: dict[str, tuple[str, ...]]  # table → tables and sources
    sources: tuple[str, ...]

    @property
    def sinks(self) -> list[str]:
        """Tables that no other is made from, by name: the least of them is how far the platform has come."""
        used = {name for inputs in self.inputs.values() for name in inputs}
        return sorted(self.inputs.keys() - used)

    def sources_of(self, table: str) -> set[str]:
        """Every source that ends up in a table."""
        found: set[str] = set()
        waiting = [table]
        while waiting:
            name = waiting.pop()
            if name in self.inputs:
                waiting.extend(self.inputs[name])
            else:
                found.add(name)
        return found


def order(inputs: Mapping[str, Iterable[str]], sources: Iterable[str]) -> Graph:
    """A graph of these; raises an error that names the unknown input, or the circle."""
    known, made_from = set(sources), {table: tuple(each) for table, each in inputs.items()}
    for table, each in made_from.items():
        if unknown := [name for name in each if name not in made_from and name not in known]:
            raise GraphError(
                f"{table} is made from {unknown[0]}, which is neither a table nor a source. "
                f"Tables are {', '.join(sorted(made_from))}; sources are {', '.join(sorted(known)) or 'none yet'}."
            )
    try:
        ordered = [name for name in TopologicalSorter(made_from).static_order() if name in made_from]
    except CycleError as error:
        circle = " from ".join(reversed(error.args[1]))
        raise GraphError(f"Tables cannot be made from themselves: {circle}. Remove one of these inputs.") from error
    return Graph({table: made_from[table] for table in ordered}, tuple(sorted(known)))


def table_graph(streams: Streams, seen: Iterable[str]) -> Graph:
    """All tables: the built-in ones, and the defined ones. `seen` are the sources that the log knows."""
    sources = {*seen, *(stream.source for stream in streams.streams.values())}
    every = tuple(sorted(sources))
    inputs: dict[str, tuple[str, ...]] = dict.fromkeys(LOG_TABLES, every)
    inputs |= {tier.table: (tier.source,) for tier in Tier}
    inputs[WINDOWED_COUNTS] = tuple(tier.table for tier in TRAILING)
    if of_vectors := tuple(source for source in every if source.endswith(VECTOR_SOURCE)):
        inputs |= dict.fromkeys(VECTOR_TABLES, of_vectors)
        inputs[VECTOR_INDEX] = VECTOR_TABLES[:1]
    inputs |= {name: (stream.source,) for name, stream in streams.streams.items()}
    inputs |= {name: (join.left, join.right) for name, join in streams.joins.items()}
    if streams.streams:
        inputs[LATE_DELTAS] = tuple(sorted({stream.source for stream in streams.streams.values()}))
    return order(inputs, sources)
