"""Rows of some vectors, found in the files of their tables by DuckDB.

Belongs here: queries, and their results under the names of the fold (`vectors/schema.py`). Only named files are opened;
of these the columns of the key are read whole, and others only where a key was found. Does not belong here: which files
those are (`snapshot.py`), and what follows from the rows.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemark.tables.lake_files import quiet_database
from tidemark.vectors.reading.answers import Key
from tidemark.vectors.schema import CURRENT, DELTA_FIELDS, STATES

if TYPE_CHECKING:
    import duckdb

_TYPES = dict(DELTA_FIELDS)
_PAYLOAD = ("values", "indices", "factor", "amount", "metadata")
_KEPT = ("op", "clock", "parent_id")  # kept when a payload is removed (K5)
ENVELOPES = pa.schema(
    [
        *((name, kind) for name, kind in DELTA_FIELDS if name not in (*_PAYLOAD, "eff_us", "depth", "emit")),
        ("parent_id", pa.string()),
        ("received_us", pa.int64()),
        ("file", pa.string()),
    ]
)
WHOLE_DELTAS = pa.schema([*ENVELOPES, *((name, _TYPES[name]) for name in _PAYLOAD)])
CHECKPOINT_ROWS = pa.schema([*STATES, ("strategy", pa.string()), ("is_base", pa.bool_()), ("cut_us", pa.int64())])

_MADE = {
    "vector_id": "key",
    "event_us": "epoch_us(event_ts)",
    "received_us": "epoch_us(received_ts)",
    "origin": "coalesce(origin, producer)",
    "file": "filename",
    **{name: f"vector.{name}" for name in (*_PAYLOAD, *_KEPT)},
}
_TIMES = {"eff_us": "epoch_us(eff_ts)", "event_us": "epoch_us(event_ts)", "cut_us": "epoch_us(cut_ts)"}
# Names that are mistaken for each other differ in no more letters than this.
_NEAR = 2
_READ = "read_parquet($1, hive_partitioning = false, filename = true)"


class Scan:
    """Queries on one database, for one thread at a time."""

    @cached_property
    def _database(self) -> "duckdb.DuckDBPyConnection":
        database = quiet_database()
        database.execute("SET TimeZone = 'UTC'")
        return database

    def deltas(
        self,
        files: Sequence[str],
        keys: Sequence[Key],
        *,
        has_payload: bool,
        covered: Mapping[int, int] | None = None,
    ) -> pa.Table:
        """Deltas of vectors, with or without payloads; with `covered`, only those of later epochs."""
        schema = WHOLE_DELTAS if has_payload else ENVELOPES
        where = f"kind = 'vector' AND {_beyond(covered)}"
        return self._rows(schema, _MADE, files, "key", keys, where)

    def current(self, files: Sequence[str], keys: Sequence[Key]) -> pa.Table:
        """Rows of `vectors`."""
        return self._rows(CURRENT, _TIMES, files, "vector_id", keys)

    def checkpoints(self, files: Sequence[str], keys: Sequence[Key]) -> pa.Table:
        """Rows of `vector_checkpoints`."""
        return self._rows(CHECKPOINT_ROWS, _TIMES, files, "vector_id", keys)

    def keys_in(self, files: Sequence[str], covered: Mapping[int, int]) -> list[tuple[str, str, str]]:
        """File, namespace and id of the vectors that have deltas of later epochs in files."""
        query = f"SELECT DISTINCT filename, namespace, key FROM {_READ} WHERE kind = 'vector' AND {_beyond(covered)}"
        return self._database.execute(query, [list(files)]).fetchall() if files else []

    def namespaces_of(self, files: Sequence[str], vector_id: str) -> list[str]:
        """The namespaces with a delta of a vector of that name."""
        query = f"SELECT DISTINCT namespace FROM {_READ} WHERE kind = 'vector' AND key = $2 ORDER BY 1"
        found = self._database.execute(query, [list(files), vector_id]).fetchall() if files else []
        return [namespace for (namespace,) in found]

    def nearest_name(self, files: Sequence[str], vector_id: str) -> Key | None:
        """Namespace and id of the vector with the most similar name, if it is similar."""
        query = (
            "SELECT namespace, key, damerau_levenshtein(key, $2) AS letters "
            f"FROM (SELECT DISTINCT namespace, key FROM {_READ} WHERE kind = 'vector') "
            "WHERE letters <= $3 ORDER BY letters, key, namespace LIMIT 1"
        )
        found = self._database.execute(query, [list(files), vector_id, _NEAR]).fetchall() if files else []
        return (found[0][0], found[0][1]) if found else None

    def _rows(
        self,
        schema: pa.Schema,
        made: Mapping[str, str],
        files: Sequence[str],
        key: str,
        keys: Sequence[Key],
        where: str = "true",
    ) -> pa.Table:
        if not files or not keys:
            return schema.empty_table()
        columns = ", ".join(f"{made.get(name, name)} AS {name}" for name in schema.names)
        if len(keys) == 1:
            # As a plain comparison, so that row groups are skipped by their statistics.
            chosen, values = f"namespace = $2 AND {key} = $3", list(keys[0])
        else:
            chosen = f"(namespace, {key}) IN (SELECT (unnest($2), unnest($3)))"
            values = [list(each) for each in zip(*keys, strict=True)]  # type: ignore[misc]
        query = f"SELECT {columns} FROM {_READ} WHERE {chosen} AND {where}"
        return self._database.execute(query, [list(files), *values]).to_arrow_table().cast(schema)


def split(table: pa.Table) -> dict[Key, pa.Table]:
    """The rows of each vector."""
    if not table.num_rows:
        return {}
    ordered = table.sort_by([("namespace", "ascending"), ("vector_id", "ascending")])
    keys = list(zip(ordered["namespace"].to_pylist(), ordered["vector_id"].to_pylist(), strict=True))
    begins = [0, *(row for row in range(1, len(keys)) if keys[row] != keys[row - 1]), len(keys)]
    return {keys[a]: ordered.slice(a, b - a) for a, b in pairwise(begins)}


def _beyond(covered: Mapping[int, int] | None) -> str:
    cases = " ".join(f"WHEN {shard} THEN {epoch}" for shard, epoch in (covered or {}).items())
    return f"epoch > CASE shard {cases} ELSE 0 END" if cases else "true"
