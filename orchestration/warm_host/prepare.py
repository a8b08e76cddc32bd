"""What a warm host imports before it forks, in steps, so that nobody waits for what is not needed at once.

Belongs here: the steps. Nothing here may start a thread of Python, open a channel, a database or a table: a forked
process has none of the threads that these need. Does not belong here: when a step is due (`host.py`).
"""

import gc
import importlib
from collections.abc import Callable, Iterable

from resources.spark_internals import CLIENT_MODULES

# What commands and runs import while they work, and not when they are imported themselves.
USED_LATER = (
    "alembic.command",
    "alembic.config",
    "google.protobuf.json_format",
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


def import_commands() -> None:
    """Everything that a command or a run needs from its first line on, and the definitions, put together once."""
    _import(("orchestration.cli.work", "orchestration.cli.compact", "orchestration.cli.retain"))
    from orchestration.definitions import defs

    defs.resolve_all_job_defs()


def import_used_later() -> None:
    """What is needed in the middle of a run."""
    _import(USED_LATER)


def import_checks() -> None:
    """Great Expectations: the longest import of all, and needed last."""
    _import(("great_expectations",))
    gc.collect()
    gc.freeze()  # a forked process then copies no page only because garbage was looked for


# The host takes no request before the first one is done; the others wait until nobody has a request.
STEPS: tuple[Callable[[], None], ...] = (import_commands, import_used_later, import_checks)


def _import(names: Iterable[str]) -> None:
    for name in names:
        importlib.import_module(name)
