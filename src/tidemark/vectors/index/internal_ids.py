"""Internal ids: (shard, epoch, ordinal) in 63 bits (V1).

Belongs here: the packing and its bounds, and a hash of the result.

Ten bits fit every shard that a platform may have (1,024). Seventeen fit the place in a write: a shard takes 100,000
deltas at once unless its bounds were raised. The remaining 36 fit 69 billion writes of one shard: two years at a
thousand a second. A number that does not fit is refused, and never cut off: two vectors would share an id.
"""

import numpy as np
import numpy.typing as npt

from tidemark.vectors.index.errors import InternalIdError

Ids = npt.NDArray[np.int64]

SHARD_BITS, EPOCH_BITS, ORDINAL_BITS = 10, 36, 17


def internal_ids(shards: npt.ArrayLike, epochs: npt.ArrayLike, ordinals: npt.ArrayLike) -> Ids:
    """The internal ids of vectors, given the folded delta of each that arrived last; all of them are 0 or above."""
    packed: Ids = np.zeros((), np.int64)
    for part, values, bits in (
        ("shard", shards, SHARD_BITS),
        ("epoch", epochs, EPOCH_BITS),
        ("ordinal", ordinals, ORDINAL_BITS),
    ):
        numbers = np.asarray(values, np.int64)
        is_wrong = (numbers < 0) | (numbers >= 1 << bits)
        if is_wrong.any():
            raise InternalIdError(part, int(numbers[is_wrong][0]), 1 << bits)
        packed = packed << bits | numbers
    return np.asarray(packed, np.int64)


def scattered(ids: Ids, parts: int) -> Ids:
    """Numbers below `parts` that depend on every bit of an id: ids themselves differ in a few of them."""
    mixed = ids.astype(np.uint64)
    # The last step of SplitMix64.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) % np.uint64(parts), np.int64)
