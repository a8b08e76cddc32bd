"""`nearest`: the vectors nearest to one of them, or to some numbers.

Belongs here: the options, and how the answer looks. How it is found is in `tidemark/vectors/reading/nearest.py`.
"""

from typing import Any

import click

from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, console, say, table
from tidemark.storage.home import Home
from tidemark.vectors.index.metrics import Metric
from tidemark.vectors.reading.nearest import NEIGHBOURS, Found, open_index

ALL = "all"


class ProbesType(click.ParamType[int | str]):
    """A number of lists, or all of them."""

    name = "probes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The text as it was written, or a number."""
        if value == ALL:
            return ALL
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r} is neither a number of lists, 1 at least, nor 'all'.", param, ctx)
        return number


class ValuesType(click.ParamType[list[float]]):
    """Numbers with commas between them."""

    name = "values"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        """The numbers."""
        try:
            return [float(each) for each in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} are not numbers. Write them with commas between them: 0.1,0.2,0.3.", param, ctx)


@command
@click.argument("vector_id", metavar="[ID]", required=False)
@click.option("-k", type=click.IntRange(min=1), default=NEIGHBOURS, show_default=True, help="How many.")
@click.option("--values", type=ValuesType(), metavar="NUMBERS", help="Near to these numbers, instead of a vector.")
@click.option("--namespace", metavar="NAME", help="The namespace. Needed if several have an index.")
@click.option("--metric", type=click.Choice([each.value for each in Metric]), help="The measure; by default l2.")
@click.option(
    "--probes",
    type=ProbesType(),
    metavar="N|all",
    help="Posting lists to search: more find more. By default as many as the index needs for a recall of 0.95.",
)
@as_json
def nearest(
    home: Home,
    vector_id: str | None,
    k: int,
    values: list[float] | None,
    namespace: str | None,
    metric: str | None,
    probes: int | str | None,
    as_json: bool,
) -> None:
    """The vectors nearest to the vector ID, which is itself left out, or to the numbers of --values.

    Deleted vectors are never found, and changed ones are found in their current state: deltas that are not in the
    index yet are searched as well. With --probes all, the answer is exact.
    """
    if (vector_id is None) == (values is None):
        raise click.UsageError("Give an ID, or numbers with --values.")
    with open_index(home, namespace) as index:
        chosen = Metric(metric) if metric else None
        # No index has so many lists: a number above the number of lists means all.
        lists = 2**31 if probes == ALL else probes if isinstance(probes, int) else None
        if values is not None:
            found = index.nearest(values, k=k, probes=lists, metric=chosen)
        else:
            found = index.nearest_to(str(vector_id), k=k, probes=lists, metric=chosen)
    if as_json:
        answer_json(answer(found, vector_id))
        return
    if not found.neighbours:
        say("There is no other vector.")
    else:
        console().print(_table(found, vector_id))
    click.echo(_reach(found))


def answer(found: Found, vector_id: str | None) -> dict[str, Any]:
    """For scripts."""
    return {
        "namespace": found.namespace,
        "vector_id": vector_id,
        "metric": found.metric.value,
        "probes": found.probes,
        "lists": found.lists,
        "recall": found.recall,
        "live": found.live,
        "changed_since_index": found.changed,
        "neighbours": [each._asdict() for each in found.neighbours],
        "reach": {
            "versions": found.versions,
            "epochs": {str(shard): last for shard, last in found.epochs.items()},
        },
    }


def _table(found: Found, vector_id: str | None) -> Any:
    title = f"{found.namespace}: nearest to {vector_id or 'the given numbers'} by {found.metric.value}"
    rows = table(title, "vector", "distance", numbers=("distance",))
    for each in found.neighbours:
        rows.add_row(each.vector_id, f"{each.distance:.6g}")
    return rows


def _reach(found: Found) -> str:
    searched = f"searched {found.probes:,} of {found.lists:,} lists with {found.live:,} vectors"
    recall = "" if found.recall is None else f", recall {found.recall:.3f}"
    changed = f"; {found.changed:,} changed since the index was made" if found.changed else ""
    return f"{searched}{recall}{changed}"
