"""`vector`: a vector's state now, at a time or after an epoch, and the deltas that made it.

Belongs here: the options, and how the answer looks. How it is found is in `tidemark/vectors/reading/reader.py`; it is
read from the tables, without a JVM, and equals a fold of the vector's deltas.
"""

from typing import TYPE_CHECKING, Any

import click

from tidemark.answers.vector import CHAIN, MOST_EPOCH, ask_vector, vector_as_json
from tidemark.cli.app import as_json, command
from tidemark.cli.counts import MomentType
from tidemark.cli.output import answer_json, at, console, table
from tidemark.storage.home import Home
from tidemark.vectors.reading.answers import ReadFrom, Source, Vector
from tidemark.vectors.reading.reader import Vectors

if TYPE_CHECKING:
    import pyarrow as pa

# How many numbers are shown of a vector, and of a delta.
SHOWN = 8


@command
@click.argument("vector_id", metavar="ID")
@click.option("--namespace", metavar="NAME", help="Its namespace. Needed if several have a vector of that name.")
@click.option("--as-of", type=MomentType(), metavar="TIME", help="Its state then, by what took effect until then; UTC.")
@click.option(
    "--epoch", type=click.IntRange(0, MOST_EPOCH), metavar="N", help="Its state as known after this write of its shard."
)
@click.option("--chain", "is_chain", is_flag=True, help="Its deltas in canonical order, each with its effect.")
@as_json
def vector(
    home: Home,
    vector_id: str,
    namespace: str | None,
    as_of: int | None,
    epoch: int | None,
    is_chain: bool,
    as_json: bool,
) -> None:
    """The state of a vector, now or earlier: its values, metadata and clock, and what they were read from.

    The answer equals a fold of its deltas in the table `deltas`, at the version that it names: deltas that were sent
    and not drained yet are not in it.
    """
    with Vectors(home) as vectors:
        found = ask_vector(vectors, vector_id, namespace=namespace, as_of_us=as_of, epoch=epoch, is_chain=is_chain)
        if as_json:
            answer_json(vector_as_json(found))
            return
        _show(found.vector, as_of, epoch)
        if found.chain is not None:
            _show_chain(found.chain)


def _show(found: Vector, as_of_us: int | None, epoch: int | None) -> None:
    when = [f"as of {_time(as_of_us)}"] if as_of_us is not None else []
    when += [f"after epoch {epoch:,}"] if epoch is not None else []
    title = f"{found.vector_id} in {found.namespace}"
    click.echo(", ".join([title, *(when or ["now"])]))
    counts, place = found.counts, found.place
    lines = {
        "state": str(found.status),
        "values": _numbers(found.values),
        "metadata": _pairs(found.metadata),
        "clock": _pairs(found.clock),
        "last change": f"{_time(place.eff_us)}, {place.delta_id} of {place.origin}" if place else "none yet",
        "deltas folded": f"{counts.deltas:,}{_without_effect(counts.no_base, counts.no_effect)}",
        "not folded": _not_folded(counts.parked, counts.cycles),
        "read from": _source(found.read_from),
        "in the tables": ", ".join(f"{name} at version {version}" for name, version in sorted(found.versions.items())),
    }
    for name, text in lines.items():
        click.echo(f"{name:<15}{text}")


def _show_chain(deltas: "pa.Table") -> None:
    numbers = ("depth", "epoch")
    columns = ("takes effect, UTC", "depth", "happened", "delta", "parent", "operation", "epoch", "effect")
    rows = table(f"{deltas.num_rows:,} deltas", *columns, numbers=numbers)
    rows.collapse_padding = True
    for column in rows.columns:
        column.no_wrap = column.header not in ("delta", "parent")
    for row in deltas.select(list(CHAIN)).to_pylist():
        same = row["eff_us"] == row["event_us"]
        cells = (_time(row["eff_us"]), str(row["depth"]), "then" if same else _time(row["event_us"]))
        names = (row["delta_id"], row["parent_id"] or "", row["op"] or "")
        rows.add_row(*cells, *names, f"{row['epoch']:,}", row["effect"])
    console().print(rows)


def _numbers(values: Any) -> str:
    if values is None:
        return "none"
    shown = ", ".join(f"{value:g}" for value in values[:SHOWN])
    rest = f", … ({len(values):,} in all)" if len(values) > SHOWN else ""
    return f"[{shown}{rest}]"


def _pairs(pairs: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs.items()) or "none"


def _without_effect(no_base: int, no_effect: int) -> str:
    parts = [f"{no_base:,} had no base"] * bool(no_base) + [f"{no_effect:,} had no effect"] * bool(no_effect)
    return f" ({', '.join(parts)})" if parts else ""


def _not_folded(parked: int, cycles: int) -> str:
    parts = [f"{parked:,} wait for a parent"] * bool(parked) + [f"{cycles:,} have parents in a circle"] * bool(cycles)
    return ", ".join(parts) or "none"


def _source(read_from: ReadFrom) -> str:
    folded = f"{read_from.folded:,} deltas"
    if read_from.source is Source.NOTHING:
        return f"{folded}, from {read_from.files:,} files"
    if read_from.source is Source.VECTORS:
        return "the table vectors" + (f", and {folded} that came since" if read_from.folded else "")
    kind = "the base checkpoint" if read_from.is_base else f"a checkpoint ({read_from.strategy})"
    place = read_from.place
    after = f" after {_time(place.eff_us)}" if place else ""
    return f"{kind}{after} with {read_from.covered:,} deltas, and {folded} folded onto it"


def _time(time_us: int) -> str:
    """To the second, and further if there is more."""
    rest = time_us % 1_000_000
    return at(time_us) + (f".{rest:06d}" if rest else "")
