"""The vectors nearest to one of them, or to some numbers.

Belongs here: asking, and the answer's form. How they are found is in `tidemark/vectors/reading/nearest.py`.
"""

from collections.abc import Sequence
from typing import Any

from tidemark.answers.plain import ParameterError
from tidemark.storage.home import Home
from tidemark.vectors.index.metrics import Metric
from tidemark.vectors.reading.nearest import NEIGHBOURS, Found, open_index

ALL = "all"
# No index has so many lists: a number above the number of lists means all.
_ALL_LISTS = 2**31


def ask_nearest(
    home: Home,
    *,
    vector_id: str | None,
    values: Sequence[float] | None,
    k: int = NEIGHBOURS,
    namespace: str | None = None,
    metric: Metric | None = None,
    probes: int | None = None,
) -> Found:
    """Search; near to the vector, which is itself left out, or to the numbers."""
    with open_index(home, namespace) as index:
        if values is not None:
            return index.nearest(list(values), k=k, probes=probes, metric=metric)
        return index.nearest_to(str(vector_id), k=k, probes=probes, metric=metric)


def parse_probes(text: str) -> int:
    """A number of lists, or all of them."""
    number = _ALL_LISTS if text == ALL else int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise ParameterError(f"{text!r} is neither a number of lists, 1 at least, nor 'all'.")
    return number


def parse_values(text: str) -> list[float]:
    """Numbers with commas between them."""
    try:
        return [float(each) for each in text.split(",")]
    except ValueError as error:
        raise ParameterError(f"{text!r} are not numbers. Write them with commas between them: 0.1,0.2,0.3.") from error


def nearest_as_json(found: Found, vector_id: str | None) -> dict[str, Any]:
    """The neighbours, nearest first, and how they were searched."""
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
