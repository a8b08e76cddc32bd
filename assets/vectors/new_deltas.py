"""New deltas for a table that is folded from vector deltas, bucket by bucket, and how far its rows reach.

Belongs here: whether the record of a bucket still describes its rows, and whether `deltas` has more than that. No Spark
and no Dagster run: the daemon looks every few seconds. Does not belong here: what is computed then.

Two things are stored about a bucket. Its record describes the run that made it; its lineage also says up to which
version of `deltas` nothing more has come for it. So a bucket that no delta touches needs neither a run nor a look at
old commits, however long it stays unchanged.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from assets.ingest.schema import DELTAS
from assets.vectors.schema import VECTORS
from resources.record import Record
from tidemark.model.deltas import Kind
from tidemark.observe.sealed_log import Log
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile, edits_of, find_break
from tidemark.tables.lineage import UNKNOWN, Lineage, LineageFile, Made, follow
from tidemark.tables.plans import durable_at
from tidemark.tables.table_spec import TableSpec
from tidemark.vectors.checksums import checksums_of
from tidemark.vectors.reading.snapshot import is_rewriting
from tidemark.vectors.tables import BUCKETS

# Shard → last epoch that a bucket holds; None if it has to be folded from its first delta.
Covered = dict[int, int] | None

# A cache over files of `deltas`, for the life of this process: files never change.
_buckets_of: dict[str, frozenset[int]] = {}


class BucketState(NamedTuple):
    """A bucket of a table, compared with `deltas` at a version."""

    made_from: int | None  # the version up to which it holds everything; None if that is not reliable
    is_due: bool  # whether a fold would change its rows or its record


def vector_sources(home: Home) -> list[str]:
    """The namespaces that have ever sent vectors, as the log names them: `shop/vector`."""
    log = Log(home)
    return [name for name in log.sources(log.sealed) if name.endswith(f"/{Kind.VECTOR}")]


def due_buckets(home: Home, spec: TableSpec, records: Mapping[str, Record]) -> list[int]:
    """The buckets to fold. If a home has never seen a vector, no file is opened."""
    state = lake_files.readable_state(home.lake / DELTAS.name)
    if state is None or not vector_sources(home):
        return []
    return [bucket for bucket, found in bucket_states(home, spec, records, state.version).items() if found.is_due]


def bucket_states(home: Home, spec: TableSpec, records: Mapping[str, Record], version: int) -> dict[int, BucketState]:
    """Every bucket of a table, compared with `deltas` at a version.

    A bucket goes on from its rows unless they are not reliable: it has rows but no record, the table or `deltas` is not
    the recorded one, another process has changed the bucket, or folded rows have been rewritten since. A bucket that
    was committed and never recorded is due, so that the next run reports it.
    """
    path, state = home.lake / spec.name, lake_files.readable_state(home.lake / spec.name)
    lineage = follow(LineageFile(home.plans, spec.name).read(), path, spec.name, state) if state else Lineage()
    lying = {bucket % spec.buckets for bucket in lake_files.partitions(path)} if state else set()
    since = _since(home, spec, records, lineage, lying) if state else {}
    changes = _changes(home.lake / DELTAS.name, min(since.values(), default=version), version)
    since = {bucket: after for bucket, after in since.items() if after >= changes.relied_on_from}
    everything = lying | buckets_in(all_files(home, version)) if len(since) < spec.buckets else set()
    found = dict[int, BucketState]()
    for bucket in range(spec.buckets):
        after, record = since.get(bucket), records.get(spec.grain.key(bucket))
        if after is None:
            found[bucket] = BucketState(None, bucket in everything)
            continue
        is_unrecorded = record is not None and lineage.changed(bucket) > record.table_version
        found[bucket] = BucketState(after, is_unrecorded or bucket in buckets_in(changes.added_after(after)))
    return found


def covered_epochs(home: Home, states: Mapping[int, BucketState], buckets: Iterable[int]) -> dict[int, Covered]:
    """The epochs that some buckets cover, in the form that a fold needs."""
    versions = {bucket: states[bucket].made_from for bucket in buckets}
    held = {version: durable_at(home, version) for version in versions.values() if version is not None}
    return {bucket: None if version is None else held[version] for bucket, version in versions.items()}


def made_from_version(home: Home) -> int | None:
    """The version of `deltas` of which `vectors` holds everything; None if that is unknown for some bucket."""
    spec = VECTORS
    state = lake_files.readable_state(home.lake / spec.name)
    if state is None:
        return None
    lineage = follow(LineageFile(home.plans, spec.name).read(), home.lake / spec.name, spec.name, state)
    generation = KnownTableFile(home.plans, DELTAS.name).read().generation
    made = [lineage.partitions.get(bucket) for bucket in range(spec.buckets)]
    sources = [each.source for each in made if each and each.source >= 0 and each.generation == generation]
    return min(sources) if len(sources) == spec.buckets else None


def buckets_in(files: Iterable[str]) -> set[int]:
    """The buckets of the vectors that have deltas in these files of `deltas`."""
    asked = set(files)
    unseen = sorted(asked - _buckets_of.keys())
    if unseen:
        _buckets_of.update(_look_at(unseen))
    return set().union(*(_buckets_of[file] for file in asked))


def all_files(home: Home, version: int) -> list[str]:
    """The files of `deltas` at a version."""
    return lake_files.files(home.lake / DELTAS.name, version)


def names_parents(home: Home, version: int) -> bool:
    """Whether any delta of `deltas` at a version names a parent: if none does, there are no families to look for."""
    files = all_files(home, version)
    if not files:
        return False
    with lake_files.quiet_database() as database:
        query = "SELECT 1 FROM read_parquet($1) WHERE kind = $2 AND vector.parent_id IS NOT NULL LIMIT 1"
        return bool(database.execute(query, [files, str(Kind.VECTOR)]).fetchall())


class _Changes(NamedTuple):
    """The files that commits have added to `deltas`, by version, as far back as commits only added rows."""

    relied_on_from: int  # at this version and later ones, rows were only added
    added: dict[int, list[str]]

    def added_after(self, version: int) -> set[str]:
        return {file for at, files in self.added.items() if at > version for file in files}


def _changes(path: Path, after: int, upto: int) -> _Changes:
    """The commits after a version, the last first, until one that changed existing rows or is gone."""
    present: set[str] | None = None
    added = dict[int, list[str]]()
    for version in range(upto, after, -1):
        if not lake_files.commit_file(path, version).exists():
            return _Changes(version, added)
        actions = list(lake_files.actions_of(path, version))
        if is_rewriting(actions):
            return _Changes(version, added)
        new = [
            str(path / unquote(action["add"]["path"]))
            for action in actions
            if "add" in action and action["add"].get("dataChange", True)
        ]
        if new and present is None:
            present = set(lake_files.files(path, upto))
        added[version] = [file for file in new if present and file in present]
    return _Changes(after, added)


def _since(
    home: Home, spec: TableSpec, records: Mapping[str, Record], lineage: Lineage, lying: Collection[int]
) -> dict[int, int]:
    """Bucket → the version of `deltas` up to which it is complete, from its record and lineage."""
    known, path = KnownTableFile(home.plans, spec.name).read(), home.lake / spec.name
    if find_break(path, known):
        return {}
    generation = KnownTableFile(home.plans, DELTAS.name).read().generation
    edited = {edit.partition_us % spec.buckets for edit in edits_of(path, spec.name, known)}
    found = dict[int, int]()
    for bucket in set(range(spec.buckets)) - edited:
        record, made = records.get(spec.grain.key(bucket)), lineage.partitions.get(bucket, Made())
        source = made.source if made.generation == generation else UNKNOWN
        if record is None:
            # An empty bucket may never have been in a run, because it never had a delta.
            if bucket not in lying and source >= 0:
                found[bucket] = source
            continue
        if (record.generation, record.input_generations.get(DELTAS.name)) == (known.generation, generation):
            version = record.input_versions.get(DELTAS.name, UNKNOWN)
            found[bucket] = version if made.changed > record.table_version else max(version, source)
    return found


def _look_at(files: Sequence[str]) -> dict[str, frozenset[int]]:
    """The same of each file."""
    query = (
        "SELECT filename, namespace, key FROM read_parquet($1, filename = true, hive_partitioning = false) "
        "WHERE kind = $2 GROUP BY ALL"
    )
    with lake_files.quiet_database() as database:
        names = database.execute(query, [list(files), str(Kind.VECTOR)]).to_arrow_table().combine_chunks()
    found = dict.fromkeys(files, frozenset[int]())
    if not names.num_rows:
        return found
    columns = [pa.concat_arrays(names[name].chunks).cast(pa.string()) for name in ("namespace", "key")]
    buckets = checksums_of(*columns) % BUCKETS
    in_files = names["filename"].combine_chunks().dictionary_encode()
    numbers = np.asarray(in_files.indices)
    for number, file in enumerate(in_files.dictionary.to_pylist()):
        found[file] = frozenset(np.unique(buckets[numbers == number]).tolist())
    return found
