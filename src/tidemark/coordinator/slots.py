"""Which shard has a key: (namespace, key) hashes to one of 1024 slots, and a map names the shard of each slot.

Belongs here: that map. Slots stay for ever; only the map changes when shards are added.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.arrays.hashing import combine, hash_array

SLOTS = 1024
# The top ten bits of a 64-bit hash.
_SLOT_SHIFT = np.uint64(54)


def slots_of(namespaces: pa.Array, keys: pa.Array) -> npt.NDArray[np.int64]:
    """The slot of each (namespace, key); rows without a key have one too, so that they can be refused somewhere."""
    return (combine(hash_array(namespaces), hash_array(keys)) >> _SLOT_SHIFT).astype(np.int64)


def shard_of_slot(shards: int) -> npt.NDArray[np.int64]:
    """The map for a new platform: slots dealt out evenly, in order."""
    return np.arange(SLOTS) * shards // SLOTS
