"""A vector's state now, at a time or after an epoch, and the deltas that made it.

Belongs here: asking, and the answer's form. How it is found is in `tidemark/vectors/reading/reader.py`.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from tidemark.model.timegrid import from_us
from tidemark.vectors.errors import VectorsError
from tidemark.vectors.reading.answers import ReadFrom, Vector
from tidemark.vectors.reading.reader import Vectors

if TYPE_CHECKING:
    import pyarrow as pa

MOST_EPOCH = (1 << 63) - 1
CHAIN = ("eff_us", "depth", "event_us", "origin", "delta_id", "parent_id", "op", "effect", "shard", "epoch", "ordinal")


class VectorState(NamedTuple):
    """A vector as it is or was."""

    vector: Vector
    epochs: dict[int, int]  # shard → the last epoch that is in the tables
    as_of_us: int | None
    epoch: int | None
    chain: "pa.Table | None"  # its deltas, if they were asked for


def ask_vector(
    vectors: Vectors,
    vector_id: str,
    *,
    namespace: str | None = None,
    as_of_us: int | None = None,
    epoch: int | None = None,
    is_chain: bool = False,
) -> VectorState:
    """Read a vector. Without a namespace: in the only one that has a vector of that name."""
    space = _namespace(vectors, vector_id) if namespace is None else namespace
    found = vectors.vector(vector_id, namespace=space, as_of=as_of_us, epoch=epoch)
    chain = vectors.chain(vector_id, namespace=space) if is_chain else None
    return VectorState(found, dict(vectors.epochs), as_of_us, epoch, chain)


def _namespace(vectors: Vectors, vector_id: str) -> str:
    found = vectors.namespaces_of(vector_id)
    if len(found) > 1:
        raise VectorsError(f"{', '.join(found)} have a vector {vector_id!r}. Choose one with --namespace.")
    if not found:
        raise vectors.unknown(None, vector_id)
    return found[0]


def vector_as_json(state: VectorState) -> dict[str, Any]:
    """Everything, with all numbers of the vector."""
    found, place, deltas = state.vector, state.vector.place, state.chain
    return {
        "namespace": found.namespace,
        "vector_id": found.vector_id,
        "as_of": None if state.as_of_us is None else _text(state.as_of_us),
        "epoch": state.epoch,
        "state": str(found.status),
        "values": None if found.values is None else found.values.tolist(),
        "metadata": found.metadata,
        "clock": found.clock,
        "last_change": place and {**place._asdict(), "eff_us": _text(place.eff_us), "event_us": _text(place.event_us)},
        **found.arrival._asdict(),
        "deltas": found.counts._asdict(),
        "read_from": _read_from(found.read_from),
        "reach": {"versions": found.versions, "epochs": {str(shard): last for shard, last in state.epochs.items()}},
        **({} if deltas is None else {"chain": [_delta(row) for row in deltas.select(list(CHAIN)).to_pylist()]}),
    }


def _read_from(read_from: ReadFrom) -> dict[str, Any]:
    return {
        "source": str(read_from.source),
        "covered": read_from.covered,
        "folded": read_from.folded,
        "files": read_from.files,
        "place": read_from.place and _text(read_from.place.eff_us),
        "strategy": read_from.strategy,
        "is_base": read_from.is_base,
    }


def _delta(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "eff_us": _text(row["eff_us"]), "event_us": _text(row["event_us"])}


def _text(time_us: int) -> str:
    return from_us(time_us).isoformat().replace("+00:00", "Z")
