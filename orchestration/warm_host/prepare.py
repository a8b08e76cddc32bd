"""What a warm host imports before it forks: everything that a command or a run needs.

Belongs here: the list. Nothing here may start a thread of Python, open a channel, a database or a table: a forked
process has none of the threads that these need. Does not belong here: when it is imported (`host.py`).
"""

import gc
import importlib
from collections.abc import Iterable

from resources.spark_internals import CLIENT_MODULES

# What commands and runs import while they work, and not when they are imported themselves.
USED_LATER = (
    "alembic.command",
    "alembic.config",
    "google.protobuf.json_format",
    "great_expectations",
    "grpc",
    "pandas",
    "polars",
    *CLIENT_MODULES,
    "rich.console",
    "rich.live",
    "rich.progress",
    "rich.table",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.orm",
)


def import_everything() -> None:
    """Import it all, and put the definitions together once."""
    _import(("orchestration.cli.work", "orchestration.cli.compact", "orchestration.cli.retain"))
    from orchestration.definitions import defs

    defs.resolve_all_job_defs()
    _import(USED_LATER)
    gc.collect()
    gc.freeze()  # a forked process then copies no page only because garbage was looked for


def _import(names: Iterable[str]) -> None:
    for name in names:
        importlib.import_module(name)
