"""The checksum of whole columns is that of one vector (`bucket_of`), and so is the bucket."""

import zlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemark.vectors.checksums import checksums_of
from tidemark.vectors.tables import BUCKETS, bucket_of

KEYS = st.lists(st.tuples(st.text(max_size=9), st.text(max_size=40)), max_size=20)


@given(KEYS, st.integers(0, 5))
def test_checksums_of_columns_are_those_of_zlib(keys: list[tuple[str, str]], cut: int) -> None:
    columns = (pa.array([key[part] for key in keys], pa.string())[cut:] for part in range(2))
    found = checksums_of(*columns).tolist()
    assert found == [zlib.crc32(f"{space}/{name}".encode()) for space, name in keys[cut:]]
    assert [checksum % BUCKETS for checksum in found] == [bucket_of(*key) for key in keys[cut:]]
