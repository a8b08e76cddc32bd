"""How a loop over rows is compiled.

Belongs here: the one way in which this project compiles a function, and nothing that computes. A loop is compiled where
NumPy and Arrow have no single call for it and every row is looked at: texts, hashes, tables of slots. Such a function
takes and gives arrays and numbers, knows no object, raises nothing, and lets other threads run meanwhile. It is plain
Python too, and tests may call it as that. The result is kept on the disk (`__pycache__`): only the first call in a
fresh checkout waits for the compiler.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code, which holds no lock of Python's while it runs."""
    return cast("F", numba.njit(cache=True, nogil=True, error_model="numpy")(function))
