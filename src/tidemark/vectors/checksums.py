"""The checksums that put vectors into buckets, for whole columns at once.

Belongs here: CRC-32 as `zlib` and Spark compute it, over a namespace, a slash and a vector's name. `tables.py` defines
a bucket; a test compares the two.
"""

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.arrays.columns import bytes_of
from tidemark.arrays.compiled import compiled, inlined

Numbers = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

_ALL_BITS = 0xFFFFFFFF
_SLASH = 0x2F


def _steps() -> Numbers:
    """What each value of the last byte adds to a checksum that is shifted by a byte."""
    # For one byte, `zlib` gives: not ((ones >> 8) ^ steps[ones ^ byte]). So steps are found without a polynomial.
    one_byte = [zlib.crc32(bytes([value ^ 0xFF])) for value in range(256)]
    return np.array(one_byte, np.int64) ^ _ALL_BITS ^ (_ALL_BITS >> 8)


_STEPS = _steps()


def checksums_of(namespaces: pa.Array, vector_ids: pa.Array) -> Numbers:
    """The checksum of every row's vector; neither column has a null."""
    found = np.empty(len(vector_ids), np.int64)
    _checksums(*bytes_of(namespaces), *bytes_of(vector_ids), _STEPS, found)
    return found


@inlined
def _over(checksum: int, data: Bytes, begin: int, end: int, steps: Numbers) -> int:
    for place in range(begin, end):
        checksum = (checksum >> 8) ^ steps[(checksum ^ data[place]) & 0xFF]
    return checksum


@compiled
def _checksums(
    space_offsets: Offsets, spaces: Bytes, id_offsets: Offsets, ids: Bytes, steps: Numbers, found: Numbers
) -> None:
    for row in range(len(found)):
        checksum = _over(
            _ALL_BITS, spaces, space_offsets[row] - space_offsets[0], space_offsets[row + 1] - space_offsets[0], steps
        )
        checksum = (checksum >> 8) ^ steps[(checksum ^ _SLASH) & 0xFF]
        checksum = _over(checksum, ids, id_offsets[row] - id_offsets[0], id_offsets[row + 1] - id_offsets[0], steps)
        found[row] = checksum ^ _ALL_BITS
