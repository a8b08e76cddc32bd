"""Which bucket a vector lies in: the same for who writes and who reads, for ever."""

import pytest

from tidemark.vectors.tables import BUCKETS, bucket_of

# Written down once: tables that exist are divided so. That Spark says the same is a test of its own.
KNOWN = {("shop", "item-0001"): 3, ("shop", ""): 12, ("fleet", "häuser/ñ"): 14, ("a", "水"): 7}


@pytest.mark.parametrize(("key", "bucket"), KNOWN.items())
def test_a_bucket_is_what_it_has_always_been(key: tuple[str, str], bucket: int) -> None:
    assert bucket_of(*key) == bucket


def test_vectors_are_spread_over_all_buckets() -> None:
    assert {bucket_of("shop", f"item-{number}") for number in range(500)} == set(range(BUCKETS))
