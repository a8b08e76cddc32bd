"""Columns of the tables that store an index of vectors, and their meaning (V1).

Belongs here: the declarations of the tables. `tidemark/vectors/index/tables.py` turns an index into their rows and
back; a test compares both.

Only `vector_index` is an asset: the four others are its parts. They are read at the versions that it names, so that
readers see an index whole or not at all, even during a write.
"""

import pyarrow as pa

from tidemark.tables.table_spec import PROPERTIES, STATISTICS, Column, TableSpec
from tidemark.vectors.index.tables import PROBING
from tidemark.vectors.tables import BUCKET, BUCKETS, CENTROIDS, DELETED, DICTIONARY, INDEX, POSTINGS

_NAMESPACE = Column("namespace", pa.string(), "The namespace of the index.", is_required=True)
_INTERNAL_ID = Column(
    "internal_id", pa.int64(), "Shard, epoch and ordinal of the delta that made this state, in 63 bits.", True
)
_CENTROID_ID = Column("centroid_id", pa.int64(), "The number of a posting list.", is_required=True)
_VALUES = Column("values", pa.list_(pa.float32()), "The numbers of the vector.", is_required=True)


def _spec(name: str, description: str, *columns: Column, order_by: tuple[str, ...] = (), buckets: int = 1) -> TableSpec:
    bucket = Column(BUCKET, pa.int32(), "What is written anew together.", is_required=True)
    return TableSpec(
        name=name,
        description=description,
        columns=(_NAMESPACE, *columns, bucket),
        partition_by=BUCKET,
        properties={**PROPERTIES, STATISTICS: "namespace"},
        order_by=("namespace", *order_by),
        buckets=buckets,
    )


VECTOR_DICTIONARY = _spec(
    DICTIONARY,
    "The live vectors of each index: by which number a name is known inside.",
    Column("vector_id", pa.string(), "The vector's name.", is_required=True),
    _INTERNAL_ID,
    order_by=("vector_id",),
    buckets=BUCKETS,
)
VECTOR_CENTROIDS = _spec(
    CENTROIDS, "The middle of each posting list.", _CENTROID_ID, _VALUES, order_by=("centroid_id",)
)
VECTOR_POSTINGS = _spec(
    POSTINGS,
    "The vectors of each posting list, those too that the deleted bitmap hides.",
    _CENTROID_ID,
    _INTERNAL_ID,
    _VALUES,
    order_by=("centroid_id", "internal_id"),
    buckets=BUCKETS,
)
VECTOR_DELETED = _spec(
    DELETED,
    "The internal ids that are dead, but still in posting lists.",
    Column("bitmap", pa.binary(), "A 64-bit roaring bitmap in its portable form.", is_required=True),
)
VECTOR_INDEX = _spec(
    INDEX,
    "Which versions of the other tables are the index of a namespace, how it was made, and how well it finds.",
    *(
        Column(name, pa.int64(), comment, is_required=True)
        for name, comment in (
            ("dictionary_version", "The version of `vector_dictionary` that belongs to the index."),
            ("centroids_version", "The version of `vector_centroids` that belongs to the index."),
            ("postings_version", "The version of `vector_postings` that belongs to the index."),
            ("deleted_version", "The version of `vector_deleted` that belongs to the index."),
            ("vectors_version", "The version of `vectors` that it was made from."),
            ("trained_epoch", "The greatest epoch folded into the vectors that the centroids were trained on."),
            ("trained_vectors", "How many live vectors there were then."),
            ("seed", "The seed of the training."),
            ("dimension", "The length of its vectors."),
            ("lists", "How many posting lists there are: so many probes find everything."),
            ("entries", "How many entries these have."),
            ("live", "How many of them are live: as many as the dictionary has."),
            ("dead", "How many of them are dead."),
            ("left_out", "Live vectors that are not in it: of another length, or with a value that is no number."),
            ("measured_entries", "How many entries there were when recall was measured."),
        )
    ),
    Column("default_metric", pa.string(), "By what is searched unless a query says it.", is_required=True),
    Column("probing", pa.list_(PROBING), "For each metric: lists probed unless told, and the recall measured there."),
)

# In the order in which they are written: the pointer that names them comes last.
PARTS = (VECTOR_POSTINGS, VECTOR_DICTIONARY, VECTOR_CENTROIDS, VECTOR_DELETED)
