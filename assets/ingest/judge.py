"""The second look: which of the rows set aside are copies, and what becomes a dead letter.

Belongs here: comparing whole identities (Q3), and the rows of `dead_letters`. It is relational work on a handful of
rows, and most drains find no copy at all: DuckDB does it in the time in which a cold JVM would compile the query.
Does not belong here: which rows are looked at (`sift.py`), writing tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from assets.ingest.schema import DEAD_LETTERS, IDENTITY, PLACE
from assets.ingest.sift import Aside
from resources.coordinator.schema import RAW_LIMIT

# Beyond it DuckDB works on the disk: the second look must not be what fills the memory.
MEMORY_LIMIT = "1GB"
# What of a dead letter is in the log as it stands; the partition column is computed where the rows are written.
FROM_THE_LOG = ", ".join(name for name in DEAD_LETTERS.names if name != DEAD_LETTERS.partition_by)

# Whoever came first, by (epoch, ordinal), is the delta, and all others are copies of it. What the table holds came
# before: it is ranked with the others and never reported. Whole identities are compared, never hashes.
JUDGE = """
CREATE TEMP TABLE copies AS
WITH suspects AS (
    SELECT * FROM read_parquet({aside}) WHERE verdict = 'accepted'
), judged AS (
    SELECT *, false AS is_known FROM suspects
    UNION ALL BY NAME
    SELECT {identity}, {place}, content_hash, true AS is_known FROM known
    WHERE {has_known} AND identity_hash IN (SELECT identity_hash FROM suspects)
)
SELECT *,
    row_number() OVER arrivals AS place,
    first_value(epoch) OVER arrivals AS first_epoch,
    first_value(ordinal) OVER arrivals AS first_ordinal,
    first_value(content_hash) OVER arrivals IS NOT DISTINCT FROM content_hash AS is_same
FROM judged
WINDOW arrivals AS (PARTITION BY {identity} ORDER BY epoch, ordinal, shard)
QUALIFY place > 1 AND NOT is_known
"""

# A copy is shown with its payload as JSON, a refused delta with what was sent.
LETTERS = """
COPY (
    SELECT {columns} FROM read_parquet({aside}) WHERE verdict = 'refused'
    UNION ALL BY NAME
    SELECT {columns} FROM (
        SELECT * EXCLUDE (payload) REPLACE (
            CASE WHEN is_same THEN 'duplicate' ELSE 'id_reuse' END AS reason,
            CASE WHEN is_same THEN 'a copy of the delta at ' ELSE 'another delta under the identity of the one at ' END
                || 'epoch ' || first_epoch || ', ordinal ' || first_ordinal AS detail,
            array_slice(encode(payload), 1, {limit}) AS raw,
            octet_length(encode(payload)) AS raw_bytes
        ) FROM (
            SELECT *, coalesce(to_json(vector), to_json(sample), to_json(signal))::VARCHAR AS payload FROM copies
        )
    )
) TO {letters} (FORMAT parquet)
"""


@dataclass(frozen=True)
class Judged:
    """Files of the dead letters and of the places of copies; none where there are no such rows."""

    letters: Path | None
    copies: Path | None
    number_of_copies: int


def judge(aside: Aside, *, known_files: Sequence[str], directory: Path) -> Judged:
    """Judge the rows set aside; `known_files` are the data files of `deltas` that may hold the first of a copy."""
    if aside.file is None:
        return Judged(None, None, 0)
    letters, places = directory / "letters.parquet", directory / "copies.parquet"
    names = {
        "aside": _literal(aside.file),
        "letters": _literal(letters),
        "places": _literal(places),
        "identity": ", ".join(IDENTITY),
        "place": ", ".join(PLACE),
        "columns": FROM_THE_LOG,
        "limit": RAW_LIMIT,
    }
    with duckdb.connect(config={"temp_directory": str(directory / "spill"), "memory_limit": MEMORY_LIMIT}) as database:
        files = list(known_files) if aside.suspects else []
        database.read_parquet(files or [str(aside.file)], hive_partitioning=False).create_view("known")
        database.execute(JUDGE.format(**names, has_known=bool(files)))
        (number,) = database.execute("SELECT count(*) FROM copies").fetchone() or (0,)
        if number:
            database.execute("COPY (SELECT {place} FROM copies) TO {places} (FORMAT parquet)".format(**names))
        if number or aside.refused:
            database.execute(LETTERS.format(**names))
    return Judged(letters if number or aside.refused else None, places if number else None, int(number))


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
