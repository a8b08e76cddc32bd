"""Vectors and an index of them without a JVM: real Delta tables, an index that follows when a test says so.

For tests of those who search: what is sent, what is folded and what is indexed can each be left behind.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from assets.vectors import index_asset
from assets.vectors.index_asset import next_indexes, write_indexes
from assets.vectors.index_schema import VECTOR_INDEX
from assets.vectors.index_step import Step
from assets.vectors.schema import VECTORS
from tests.support.vector_lake import VectorLake, delta
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTable
from tidemark.tables.table_spec import TableSpec, create_table


class DirectLake:
    """Writes as the lake does, without a JVM; dies before a table if it is told to."""

    spark = None

    def __init__(self, home: Home) -> None:
        self.home, self.dies_at = home, ""
        self.written: list[tuple[str, tuple[int, ...] | None]] = []

    @contextmanager
    def lock(self, _: str) -> Iterator[None]:
        yield

    def settle(self, spec: TableSpec) -> None:
        if lake_files.table_state(self.home.lake / spec.name) is None:
            create_table(self.home.lake / spec.name, spec)

    def version(self, table: str) -> int | None:
        state = lake_files.table_state(self.home.lake / table)
        return state.version if state else None

    def known(self, _: str) -> KnownTable:
        return KnownTable()

    def replace(self, spec: TableSpec, rows: pa.Table, *, hours: Sequence[int] | None, made_from: Any) -> None:
        del made_from
        if spec.name == self.dies_at:
            raise InterruptedError(spec.name)
        self.written.append((spec.name, None if hours is None else tuple(hours)))
        where = None if hours is None else f"bucket IN ({', '.join(map(str, hours))})"
        write_deltalake(self.home.lake / spec.name, rows.select(spec.names), mode="overwrite", predicate=where)


class Shop:
    """Vectors of a home, and an index of them that follows when it is told to."""

    def __init__(self, home: Home) -> None:
        self.home, self.tables, self.lake = home, VectorLake(home), DirectLake(home)
        self._epochs = count(1)

    def send(self, op: str, name: str, values: Sequence[float] | None = None) -> None:
        self.tables.send([delta(next(self._epochs), op, name, values)])

    def follow(self, *, seed: int = 0, is_rebuild: bool = False) -> list[Step]:
        version = self.lake.version(VECTORS.name)
        assert version is not None
        self.lake.settle(VECTOR_INDEX)
        steps = next_indexes(self.home, version, seed=seed, is_rebuild=is_rebuild)
        write_indexes(self.lake, steps, version)  # type: ignore[arg-type]
        return steps


def without_spark(patch: pytest.MonkeyPatch) -> None:
    """Rows of an index stay Arrow tables on their way to a `DirectLake`."""
    patch.setattr(index_asset, "frame_of", lambda _, rows: rows)
    patch.setattr(index_asset, "arranged", lambda rows, _: rows)
