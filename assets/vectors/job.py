"""From files of `deltas` to files of `vectors`, in one Spark job.

Belongs here: how the work is cut into tasks, and the data between them. The work of a task is in `tidemark/vectors`
(`tidemark/vectors/packed.py`, `tidemark/vectors/bucket_files.py`), without Spark.

Tasks read and write Parquet themselves. Between tasks, deltas are in files, as packets; Spark only gets their paths,
and brings the packets of a bucket together. So every delta is read, written and folded once, and never goes through a
JVM.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from shutil import rmtree
from uuid import uuid4

import msgspec
import pyarrow as pa

from assets.ingest.schema import DELTAS
from assets.vectors.new_deltas import Covered
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from resources.lake import Lake, LakeError
from tidemark.storage.home import Home
from tidemark.tables.new_files import NewFile
from tidemark.tables.table_spec import sql_type
from tidemark.vectors.bucket_files import FoldResult, Target, fold_buckets
from tidemark.vectors.packed import Packet, Wanted, pack, payload_bytes, read_deltas
from tidemark.vectors.reading.snapshot import FileOf, files_at
from tidemark.vectors.tables import BUCKETS

# The bytes of files that one task reads, and that one task folds.
READ_BYTES, FOLD_BYTES = 32 << 20, 16 << 20
# A piece of a bucket has at most this many bytes in files; decoded, it is a few times as large.
PIECE_BYTES = 64 << 20

_PACKETS = pa.schema(
    [
        ("bucket", pa.int32()),
        ("piece", pa.int32()),
        ("hour_us", pa.int64()),
        ("columns", pa.int64()),
        ("file", pa.string()),
        ("begin", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
_PACKETS_DDL = ", ".join(f"{field.name} {sql_type(field.type)}" for field in _PACKETS)
_OUTCOMES_DDL = "bucket int, outcome binary"


def folded_files(lake: Lake, version: int, covered: Mapping[int, Covered]) -> list[NewFile]:
    """New files of `vectors` for the given buckets: all deltas, or those that a bucket does not cover yet.

    The job finds vectors that cannot go on from their rows. Their buckets are then folded once more, with all deltas
    of these vectors, from the beginning or from the base below which payloads are gone (K5).
    """
    files, present = files_at(lake.path(DELTAS.name), version), files_at(lake.path(VECTORS.name))
    bases = _by_bucket(files_at(lake.path(VECTOR_CHECKPOINTS.name)))
    going_on = {bucket: epochs for bucket, epochs in covered.items() if epochs is not None}
    anew = covered.keys() - going_on.keys()
    wanted = Wanted({bucket: epochs or {} for bucket, epochs in covered.items()})
    target = Target(
        str(lake.path(VECTORS.name)),
        pieces=1,
        present={bucket: held for bucket, held in _by_bucket(present).items() if bucket in going_on},
        bases={bucket: held for bucket, held in bases.items() if bucket in anew},
        anew=pa.array([], pa.string()),
    )
    lowest = min((dict.fromkeys(range(lake.home.settings.shards), 0) | wanted.lowest).values())
    asked = tuple(file for file in files if file.may_exceed(lowest)) if covered else ()
    made: list[NewFile] = []
    while True:
        target = target._replace(pieces=pieces_of(vector_bytes(lake, asked), sum(file.bytes for file in present)))
        outcomes = run(lake, asked, wanted, target) if asked else []
        made += [file for outcome in outcomes for file in outcome.files]
        unable = {name for outcome in outcomes for name in outcome.unable}
        if not unable:
            return made
        if not going_on or unable <= set(target.anew.to_pylist()):
            raise LakeError(
                f"Deltas of {min(unable)} lie in files of other hours than they are of, so that their order is "
                f"not known. Write these hours of {DELTAS.name} anew: ./tidemark rebuild --help."
            )
        target = target._replace(anew=pa.array(sorted(unable | set(target.anew.to_pylist()))), bases=bases)
        again = {outcome.bucket: wanted.covered[outcome.bucket] for outcome in outcomes if outcome.unable}
        asked, wanted = files, Wanted(again, target.anew)


def pieces_of(delta_bytes: int, present_bytes: int) -> int:
    """Into how many pieces a bucket is cut: a power of two, so that pieces of a larger number divide into these."""
    return 1 << (max(delta_bytes, present_bytes) // BUCKETS // PIECE_BYTES).bit_length()


def vector_bytes(lake: Lake, files: Sequence[FileOf]) -> int:
    """At most how many bytes of the files are about vectors; with few files, all bytes, to save the look."""
    at_most = sum(file.bytes for file in files)
    if at_most < BUCKETS * PIECE_BYTES:
        return at_most
    tasks = _tasks(files)
    said = lake.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(_weighed, tasks), "bytes bigint").collect()
    return sum(row["bytes"] for row in said)


def run(lake: Lake, files: Sequence[FileOf], wanted: Wanted, target: Target) -> list[FoldResult]:
    """Fold the wanted deltas of some files into the buckets of the target; returns the result for each bucket."""
    tasks = _tasks(files)
    held = sum(Path(path).stat().st_size for paths in target.present.values() for path in paths)
    folding = min(BUCKETS, 1 + (held + sum(file.bytes for file in files)) // FOLD_BYTES)
    with _room(lake.home) as room:
        found = (
            lake.spark.range(0, len(tasks), 1, len(tasks))
            .mapInArrow(partial(_packed, tasks, wanted, target.pieces, str(room)), _PACKETS_DDL)
            .repartition(folding, "bucket")
            .sortWithinPartitions("bucket", "piece", "hour_us")
            .mapInArrow(partial(_folded, target), _OUTCOMES_DDL)
            .collect()
        )
    outcomes = (msgspec.msgpack.decode(row["outcome"], type=FoldResult) for row in found)
    return sorted(outcomes, key=lambda outcome: outcome.bucket)


@contextmanager
def _room(home: Home) -> Iterator[Path]:
    """A directory for packets. It also removes what a killed run left, which is safe under the table's lock."""
    rmtree(home.work / VECTORS.name, ignore_errors=True)
    room = home.work / VECTORS.name / str(uuid4())
    room.mkdir(parents=True)
    try:
        yield room
    finally:
        rmtree(room, ignore_errors=True)


def _by_bucket(files: Iterable[FileOf]) -> dict[int, tuple[str, ...]]:
    ordered = sorted(files, key=lambda file: file.partition)
    return {
        bucket: tuple(file.path for file in of_bucket)
        for bucket, of_bucket in groupby(ordered, key=lambda file: file.partition)
    }


def _tasks(files: Sequence[FileOf]) -> list[list[FileOf]]:
    """Files in groups, one group per task."""
    tasks: list[list[FileOf]] = []
    left = 0
    for file in files:
        if left <= 0:
            tasks.append([])
            left = READ_BYTES
        tasks[-1].append(file)
        left -= file.bytes
    return tasks


def _weighed(tasks: list[list[FileOf]], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        files = (file for task in batch.column(0).to_pylist() for file in tasks[task])
        yield pa.RecordBatch.from_pydict({"bytes": [sum(payload_bytes(file.path) for file in files)]})


def _packed(
    tasks: list[list[FileOf]], wanted: Wanted, pieces: int, room: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        path = Path(room) / str(uuid4())
        with path.open("wb") as packets:
            for file in (file for task in batch.column(0).to_pylist() for file in tasks[task]):
                for rows in read_deltas(file.path, wanted, pieces):
                    found = pack(rows, file.partition, pieces, wanted, str(path), packets)
                    yield pa.RecordBatch.from_pylist([packet._asdict() for packet in found], schema=_PACKETS)


def _folded(target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    packets = (Packet(*row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True))
    for outcome in fold_buckets(target, packets):
        yield pa.RecordBatch.from_pydict(
            {"bucket": pa.array([outcome.bucket], pa.int32()), "outcome": [msgspec.msgpack.encode(outcome)]}
        )
