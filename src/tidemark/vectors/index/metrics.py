"""The three distances of "near": the smaller, the nearer (V3).

Belongs here: their names and definitions. How they are computed is in `kernels.py`.

Values are stored in 32 bits and computed with in 64: products of such values are exact there and no sum of them leaves
the range, so that no distance is NaN or infinite. A value beyond 32 bits' range is stored as the nearest that they
have: such a vector is that far from all others.
"""

from enum import Enum

import numpy as np
import numpy.typing as npt

from tidemark.vectors.index.errors import DimensionError, NotANumberError

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]
_MOST = float(np.finfo(np.float32).max)


class Metric(Enum):
    """A distance. The distance of `dot` is the product's negative; that of `cosine` is 1 - cosine.

    A vector of zeros has no direction: its cosine with any vector, itself too, counts as 0, its distance as 1.
    """

    L2 = "l2"
    DOT = "dot"
    COSINE = "cosine"


def matrix_of(what: str, values: npt.ArrayLike, dimension: int) -> Matrix:
    """Vectors as rows of 32-bit numbers without gaps; one vector alone is one row."""
    given = np.atleast_2d(np.asarray(values))
    if given.ndim != 2 or given.shape[1] != dimension or not dimension:
        raise DimensionError(what, np.asarray(values).shape, dimension)
    is_bad = np.isnan(given).any(axis=1)
    if is_bad.any():
        raise NotANumberError(what, int(is_bad.argmax()))
    return np.ascontiguousarray(np.clip(given, -_MOST, _MOST), np.float32)
