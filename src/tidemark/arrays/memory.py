"""Getting memory from the system takes time: it comes page by page, microseconds for each on a virtual machine.

Belongs here: needing less of that. The process keeps memory that comes and goes with every group, and large arrays use
large pages. Getting a page takes about as long as all work on the deltas that fit into it.
"""

import mmap
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# The C library gives large blocks back to the kernel. Once it sees a block of this size returned (it ignores larger
# ones), it keeps smaller blocks: columns of a group.
_KEPT_BLOCK = 30 * 1024 * 1024


# From this size on an array is worth pages of two megabytes.
_LARGE = 4 * 1024 * 1024


@cache
def keep_memory() -> None:
    """Make NumPy's and Arrow's allocators keep freed memory for a while: for a process that takes writes."""
    np.empty(_KEPT_BLOCK, dtype=np.uint8)
    if "jemalloc" in pa.supported_memory_backends():  # gives memory back after a second without use; mimalloc, at once
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def zeros(size: int) -> npt.NDArray[np.int64]:
    """An array of zeros. The system provides its memory when it is first touched."""
    if 8 * size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(size, dtype=np.int64)
    pages = mmap.mmap(-1, 8 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype=np.int64)
