"""Buckets by hash as partitions: the keys by which the orchestrator knows them.

Belongs here: how a bucket's number becomes a key and back. A bucket takes the place of other tables' width of time, so
that code that asks a table's grain for keys, starts and ranges need not know which it is. Does not belong here: which
bucket a vector lies in (`tidemark/vectors/tables.py`).
"""

from dataclasses import dataclass

from tidemark.model.timegrid import FixedGrain

_PREFIX = "bucket-"
# Two digits, so that a hundred buckets sort by their numbers.
_DIGITS = 2


@dataclass(frozen=True)
class BucketGrain(FixedGrain):
    """A number instead of a span of time: each bucket begins at its number, and the next number follows it."""

    def key(self, time_us: int) -> str:
        """Key of the bucket, as the orchestrator writes it."""
        return f"{_PREFIX}{time_us:0{_DIGITS}d}"

    def start(self, key: str) -> int:
        """Number of the bucket `key`."""
        return int(key.removeprefix(_PREFIX))

    def sql_key(self, column: str) -> str:
        """SQL: the key of the bucket in a column, or null."""
        return f"concat('{_PREFIX}', lpad(cast(`{column}` AS string), {_DIGITS}, '0'))"


BUCKET = BucketGrain("bucket", "", "", 1)


def bucket_keys(count: int) -> list[str]:
    """Keys of all buckets of a table with this many."""
    return [BUCKET.key(number) for number in range(count)]
