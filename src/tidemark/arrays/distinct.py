"""How many different texts a column has.

Belongs here: one exact count, in a loop that takes a few steps per text.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.arrays.columns import Bytes, Numbers, bytes_of
from tidemark.arrays.compiled import compiled
from tidemark.arrays.hashing import hash_text


def count_distinct(columns: Sequence[pa.Array]) -> int:
    """The number of different texts in columns that have one on every row."""
    texts = pa.concat_arrays(columns)
    slots = np.zeros(1 << (2 * len(texts)).bit_length(), dtype=np.int64)
    return _count(slots, *bytes_of(texts))


@compiled
def _count(slots: Numbers, offsets: npt.NDArray[np.int32], data: Bytes) -> int:
    """A slot holds the row that has its text first, counted from 1 because 0 means that it is free."""
    last_slot = len(slots) - 1
    found = 0
    for row in range(len(offsets) - 1):
        begin, size = offsets[row] - offsets[0], offsets[row + 1] - offsets[row]
        slot = np.int64(hash_text(data, begin, begin + size)) & last_slot
        while slots[slot]:
            other = offsets[slots[slot] - 1] - offsets[0]
            if offsets[slots[slot]] - offsets[0] - other == size:
                place = 0
                while place < size and data[other + place] == data[begin + place]:
                    place += 1
                if place == size:
                    break
            slot = (slot + 1) & last_slot
        if not slots[slot]:
            slots[slot] = row + 1
            found += 1
    return found
