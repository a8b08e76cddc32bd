"""Memory costs time where the system hands it out: page by page, and microseconds for each on a virtual machine.

Belongs here: having less of that. What comes and goes with every group is kept by the process, and what is large comes
in large pages. To get a page takes about as long as all that is done with the deltas that fit into it.
"""

import mmap
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# The C library gives large blocks back to the kernel. When it sees a block of this size (it takes no larger one into
# account) come back, it keeps what is smaller: columns of a group.
_KEPT_BLOCK = 30 * 1024 * 1024


# From this size on an array is worth pages of two megabytes.
_LARGE = 4 * 1024 * 1024


@cache
def keep_memory() -> None:
    """Have NumPy's and Arrow's allocators keep what they were given for a while: for a process that takes writes."""
    np.empty(_KEPT_BLOCK, dtype=np.uint8)
    if "jemalloc" in pa.supported_memory_backends():  # gives back what was not used for a second; mimalloc, at once
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def zeros(size: int) -> npt.NDArray[np.int64]:
    """Numbers that are 0. The system hands their memory out when it is first touched."""
    if 8 * size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(size, dtype=np.int64)
    pages = mmap.mmap(-1, 8 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype=np.int64)
