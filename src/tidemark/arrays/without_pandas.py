"""A process without pandas: importing it takes longer than most answers.

Belongs here: keeping it out. Nothing heavy is imported here.
"""

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _WithoutPandas(MetaPathFinder):
    """Says that pandas is not installed. pyarrow and DuckDB import it only to check for pandas objects."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:  # noqa: ARG002 - the protocol's signature
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed by this process", name="pandas")


def spare_pandas() -> None:
    """Keep pandas out of this process."""
    sys.meta_path.insert(0, _WithoutPandas())
