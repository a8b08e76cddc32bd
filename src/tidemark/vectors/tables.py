"""The tables of vectors as readers and writers must agree on them: names, and the bucket of a vector.

Belongs here: constants and one hash. The columns are declared in `assets/vectors/schema.py`.
"""

import zlib

DELTAS = "deltas"
VECTORS = "vectors"
CHECKPOINTS = "vector_checkpoints"
# An index, and its parts.
INDEX = "vector_index"
DICTIONARY = "vector_dictionary"
CENTROIDS = "vector_centroids"
POSTINGS = "vector_postings"
DELETED = "vector_deleted"

# Commits to `deltas` under this name remove payloads that a checkpoint holds (K5); this changes no state.
PAYLOADS_REMOVED = "payloads"

BUCKETS = 16
BUCKET = "bucket"


def bucket_sql(vector_id: str = "vector_id") -> str:
    """Spark's SQL for the bucket of a vector whose name is in that column; `bucket_of` is the same without Spark."""
    return f"cast(pmod(crc32(encode(concat(namespace, '/', {vector_id}), 'utf-8')), {BUCKETS}) as int)"


BUCKET_SQL = bucket_sql()


def bucket_of(namespace: str, vector_id: str) -> int:
    """The bucket for all rows about a vector."""
    return zlib.crc32(f"{namespace}/{vector_id}".encode()) % BUCKETS
