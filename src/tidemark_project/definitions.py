"""The same definitions as `orchestration/definitions.py`, under the name that `dg` looks for."""

from orchestration.definitions import defs

__all__ = ["defs"]
