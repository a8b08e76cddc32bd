"""The tables of vectors without a JVM: real Delta tables, written by delta-rs from deltas of the oracle.

For tests of those who read them: `vectors` and checkpoints are made when the test says so, and so can be left behind.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from assets.ingest.schema import DELTAS
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from tests.support.small_lake import table_rows
from tests.support.vector_oracle import Delta, canonical, place_of, random_deltas, table_of
from tests.support.vector_tables import delta_row
from tidemark.model.timegrid import MINUTE_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile
from tidemark.tables.lineage import Input, LineageFile
from tidemark.tables.plans import Plan, PlanStore
from tidemark.tables.table_spec import TableSpec, create_table
from tidemark.vectors.chain import state_of
from tidemark.vectors.tables import BUCKETS, bucket_of

# The oracle's moments are small numbers; so many minutes lie between them here, that they fall into several hours.
STEP_US = 25 * MINUTE_US
_PAYLOAD = ("values", "indices", "factor", "amount", "metadata")


def spread_deltas(seed: int, size: int, vectors: str) -> list[Delta]:
    """Random deltas over some hours, in the order of their arrival."""
    arrived = random_deltas(Random(seed), size, vectors)
    return [{**delta, "event_us": delta["event_us"] * STEP_US, "received_us": 0} for delta in arrived]


def delta(epoch: int, op: str, name: str, values: Sequence[float] | None = None) -> Delta:
    """A delta that arrives, and happens, as the only one of its write."""
    nothing = dict.fromkeys(("indices", "factor", "amount", "metadata", "clock", "parent_id"))
    where: Delta = {"namespace": "demo", "vector_id": name, "shard": 0, "epoch": epoch, "ordinal": 0, "origin": "p"}
    when: Delta = {"delta_id": f"d{epoch}", "event_us": epoch * STEP_US // 100, "received_us": 0}
    return {**nothing, **where, **when, "op": op, "values": values}


class VectorLake:
    """The tables of a home, made by hand."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.deltas: list[Delta] = []
        self._number = 0
        self._other_numbers = 0
        for spec in (DELTAS, VECTORS, VECTOR_CHECKPOINTS):
            create_table(home.lake / spec.name, spec)
            KnownTableFile(home.plans, spec.name).record_commit(home.lake / spec.name)

    def send(self, deltas: Iterable[Delta]) -> None:
        """Put deltas into `deltas`, as a drain does, in one commit that a plan tells of."""
        sent = list(deltas)
        self.deltas += sent
        self._number += 1
        upto = dict[int, int]()
        for delta in self.deltas:
            upto[delta["shard"]] = max(upto.get(delta["shard"], 1), delta["epoch"] + 1)
        PlanStore(self.home.plans / "deltas", 1).write(Plan(self._number, 1, {}, [], upto, 0))
        self._write(DELTAS, map(_delta_row, sent), f"{DELTAS.name}/1", self._number, mode="append")

    def fold(self, *, has_rows_for_parked: bool = False, is_remembered: bool = True) -> None:
        """Bring `vectors` up to date."""
        state = lake_files.table_state(self.home.lake / DELTAS.name)
        assert state is not None
        rows = [row for name in self.names() for row in self._row(name, has_rows_for_parked)]
        self._replace(VECTORS, rows)
        if is_remembered:
            path = self.home.lake / VECTORS.name
            made = Input(state.version, 1)
            LineageFile(self.home.plans, VECTORS.name).record(path, made_from=made, made=range(BUCKETS))

    def checkpoint(self, states: Iterable[pa.Table], **said: Any) -> None:
        """Add checkpoints: states, one row each."""
        rows = [{**_state_row(state), "strategy": "full_merge", "is_base": False, **said} for state in states]
        self._write(VECTOR_CHECKPOINTS, rows, f"{VECTOR_CHECKPOINTS.name}/1/replace", self._next(), mode="append")

    def remove_payloads(self, gone: Sequence[Delta]) -> None:
        """Take payloads away, envelopes stay."""
        left = [{**delta, **dict.fromkeys(_PAYLOAD)} if delta in gone else delta for delta in self.deltas]
        self._write(DELTAS, map(_delta_row, left), f"{DELTAS.name}/1/payloads", self._next(), mode="overwrite")

    def names(self) -> list[str]:
        """The vectors that have deltas."""
        return sorted({delta["vector_id"] for delta in self.deltas})

    def of(self, name: str) -> list[Delta]:
        """The deltas of a vector that were sent."""
        return [delta for delta in self.deltas if delta["vector_id"] == name]

    def state_after(self, name: str, count: int, upto_epoch: int) -> pa.Table | None:
        """The state after the first so many deltas of those known by an epoch; none if none has a place."""
        known = [delta for delta in self.of(name) if delta["epoch"] <= upto_epoch]
        first = canonical(known, name)[:count]
        # Parents sort before their children: what has a place among all has the same among these.
        return state_of(table_of(first)) if first else None

    def _row(self, name: str, has_rows_for_parked: bool) -> list[dict[str, Any]]:
        deltas = self.of(name)
        state = state_of(table_of(deltas))
        standing = [place for delta in deltas if isinstance(place := place_of(delta, deltas), str)]
        said = {
            "parked": standing.count("parked"),
            "cycles": standing.count("cycle"),
            "has_parents": any(delta["parent_id"] is not None for delta in deltas),
        }
        if state.num_rows:
            return [{**_state_row(state), **said}]
        nothing = {"namespace": "demo", "vector_id": name, "exists": False, "is_dead": False, "deltas": 0}
        nothing |= {"no_base": 0, "no_effect": 0, "bucket": bucket_of("demo", name)}
        return [{**nothing, **said}] if has_rows_for_parked else []

    def _replace(self, spec: TableSpec, rows: list[dict[str, Any]]) -> None:
        if rows:
            self._write(spec, rows, f"{spec.name}/1/replace", self._next(), mode="overwrite")

    def _next(self) -> int:
        self._other_numbers += 1
        return self._other_numbers

    def _write(self, spec: TableSpec, rows: Iterable[dict[str, Any]], app: str, number: int, **options: Any) -> None:
        ours = CommitProperties(app_transactions=[Transaction(app, number)])
        write_deltalake(self.home.lake / spec.name, table_rows(spec, list(rows)), commit_properties=ours, **options)


def _state_row(state: pa.Table) -> dict[str, Any]:
    (row,) = state.to_pylist()
    row |= {"eff_ts": row["eff_us"], "event_ts": row["event_us"]}
    return {**row, "bucket": bucket_of(row["namespace"], row["vector_id"])}


def _delta_row(delta: Delta) -> dict[str, Any]:
    # Whose origin is not said is its producer's.
    origin = delta["origin"] if delta["epoch"] % 2 else None
    return {**delta_row(delta), "origin": origin, "producer": None if origin else delta["origin"]}
