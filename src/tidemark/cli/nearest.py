"""`nearest`: the vectors nearest to one of them, or to some numbers.

Belongs here: the options, and how the answer looks. How it is found is in `tidemark/vectors/reading/nearest.py`.
"""

from typing import Any

import click

from tidemark.answers.nearest import ask_nearest, nearest_as_json, parse_probes, parse_values
from tidemark.answers.plain import ParameterError
from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, console, say, table
from tidemark.storage.home import Home
from tidemark.vectors.index.metrics import Metric
from tidemark.vectors.reading.nearest import NEIGHBOURS, Found


class ProbesType(click.ParamType[int]):
    """A number of lists, or all of them."""

    name = "probes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        try:
            return parse_probes(str(value))
        except ParameterError as error:
            self.fail(str(error), param, ctx)


class ValuesType(click.ParamType[list[float]]):
    """Numbers with commas between them."""

    name = "values"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        """The numbers."""
        try:
            return parse_values(str(value))
        except ParameterError as error:
            self.fail(str(error), param, ctx)


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
    probes: int | None,
    as_json: bool,
) -> None:
    """The vectors nearest to the vector ID, which is itself left out, or to the numbers of --values.

    Deleted vectors are never found, and changed ones are found in their current state: deltas that are not in the
    index yet are searched as well. With --probes all, the answer is exact.
    """
    if (vector_id is None) == (values is None):
        raise click.UsageError("Give an ID, or numbers with --values.")
    found = ask_nearest(
        home,
        vector_id=vector_id,
        values=values,
        k=k,
        namespace=namespace,
        metric=Metric(metric) if metric else None,
        probes=probes,
    )
    if as_json:
        answer_json(nearest_as_json(found, vector_id))
        return
    if not found.neighbours:
        say("There is no other vector.")
    else:
        console().print(_table(found, vector_id))
    click.echo(_reach(found))


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
