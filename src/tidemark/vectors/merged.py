"""The effect of a batch of deltas on each of its vectors, as one form: merged delivery (C5, D5).

Belongs here: from the rows of a batch to forms, in canonical order. A subscriber that keeps vectors of its own, in a
cache or a search engine, applies one form for each vector instead of every delta. `compose.py` defines forms.

The order is that of D3 as far as the batch knows it: parents that are in it stand before their children, and a delta
whose parent came with an earlier batch stands at its own time, with those below it behind it. Batches follow each other
in the order of arrival; a late delta has a place before delivered ones, which no form can undo. If that matters, ask
the reader (`vectors/reading/reader.py`) for the vectors that a batch names.
"""

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.deltas import Kind, Vector
from tidemark.vectors.compose import Form, compose, form_of
from tidemark.vectors.places import PLACE_COLUMNS, with_places
from tidemark.vectors.reading.answers import Key


def merged_forms(deltas: pa.RecordBatch) -> dict[Key, Form]:
    """One form for each vector (namespace and id) among deltas in the log's schema; other kinds are ignored."""
    rows = pa.Table.from_batches([deltas])
    ordered = _in_order(rows.filter(pc.equal(rows["kind"], Kind.VECTOR)))
    payloads = ordered["vector"].to_pylist(maps_as_pydicts="strict")
    forms: dict[Key, list[Form]] = {}
    for namespace, payload in zip(ordered["namespace"].to_pylist(), payloads, strict=True):
        forms.setdefault((namespace, payload["vector_id"]), []).append(form_of(Vector(**payload)))
    return {key: reduce(compose, own) for key, own in forms.items()}


def _in_order(vectors: pa.Table) -> pa.Table:
    payload = vectors["vector"].combine_chunks()
    envelopes = {
        "namespace": vectors["namespace"],
        "vector_id": payload.field("vector_id"),
        "event_us": vectors["event_ts"].cast(pa.int64()),
        "origin": pc.coalesce(vectors["origin"], vectors["producer"]),
        "delta_id": vectors["delta_id"],
        "parent_id": payload.field("parent_id"),
    }
    placed = with_places(_rooted(pa.table(envelopes)))
    return vectors.take(pc.sort_indices(placed, [(name, "ascending") for name in PLACE_COLUMNS]))


def _rooted(envelopes: pa.Table) -> pa.Table:
    """The same, without parents from outside: a delta that names one gets its own time, and so do those below it."""
    names = zip(*(envelopes[name].to_pylist() for name in ("namespace", "vector_id", "parent_id")), strict=True)
    present = set(zip(*(envelopes[name].to_pylist() for name in ("namespace", "vector_id", "delta_id")), strict=True))
    parents = [name[-1] if name in present else None for name in names]
    place = envelopes.schema.get_field_index("parent_id")
    return envelopes.set_column(place, "parent_id", pa.array(parents, pa.string()))
