"""Planted bugs around producers: marks, the ledger, retries and fencing. See `planted.py`."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from tidemark.coordinator import retries
from tidemark.log.ledger_runs import Runs
from tidemark.shard_state import recovery, seal
from tidemark.shard_state.producers import Producers
from tidemark.storage.disk import RealDisk
from tidemark.verdicts import arrival
from tidemark.verdicts.digests import write_digests


def mark_lost() -> AbstractContextManager[Any]:
    """A start knows only the producers in its log files."""
    return patch.object(recovery, "Producers", lambda _stored: Producers())


def ledger_too_old() -> AbstractContextManager[Any]:
    """A file is sealed without its producers."""
    return patch.object(seal, "_producer_states", lambda *_: {})


def ledger_without_ancestors() -> AbstractContextManager[Any]:
    """A producer's new state forgets its state from earlier files."""
    return patch.object(seal, "Producers", lambda _stored: Producers())


def ledger_not_synced() -> AbstractContextManager[Any]:
    """The files of the ledger are written without waiting for the disk."""
    whole = Runs.store

    def store(self: Runs, *arguments: Any) -> Any:
        with patch.object(RealDisk, "sync", lambda *_: None):
            return whole(self, *arguments)

    return patch.object(Runs, "store", store)


def reuse_taken_as_retry() -> AbstractContextManager[Any]:
    """Any write under a used number is answered as the first one."""
    return patch.object(retries, "_is_same", lambda *_: True)


def digest_of_group() -> AbstractContextManager[Any]:
    """The digest depends on the place of a write in its group, so an honest retry is taken for another write."""

    def by_place(*arguments: Any) -> list[int]:
        return [digest + number for number, digest in enumerate(write_digests(*arguments))]

    return patch.object(arrival, "write_digests", by_place)


def fence_open() -> AbstractContextManager[Any]:
    """Every instance of a producer may write."""
    is_retry = Producers.is_retry

    def unfenced(self: Producers, producer: str, instance: int, sequence: int) -> bool:  # noqa: ARG001 - that is the bug
        return is_retry(self, producer, 10**9, sequence)

    return patch.object(Producers, "is_retry", unfenced)


def gap_taken() -> AbstractContextManager[Any]:
    """A number that is not the next is accepted."""

    def no_gap(self: Producers, producer: str, instance: int, sequence: int) -> bool:  # noqa: ARG001 - that is the bug
        return sequence <= self.mark(producer)

    return patch.object(Producers, "is_retry", no_gap)
