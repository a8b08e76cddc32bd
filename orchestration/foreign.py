"""An instance that is not the home's own: `dagster dev` makes one in a temporary folder if it is told of none.

Belongs here: refusing to work for it. It has none of the home's records, so to every sensor the whole home looks as if
it had never been computed. Does not belong here: where the home's own instance lies (`instance.py`).
"""

from pathlib import Path

import dagster as dg

from resources.record import Record, RecordError
from tidemark.storage.home import HOME_VARIABLE, Home
from tidemark.tables.plans import durable_epochs


class ForeignInstanceError(dg.DagsterError):
    """The instance knows nothing of what the home holds."""


def refuse_foreign(instance: dg.DagsterInstance, home: Home) -> None:
    """Raise if a sensor of this instance would compute again what the home's own instance has recorded.

    An instance elsewhere may be the operator's choice: it is one from the first drain on, and then has its records.
    """
    if _lies_in(instance, home) or not any(durable_epochs(home).values()):
        return
    try:
        Record.latest(instance, "drain")
    except RecordError:
        raise ForeignInstanceError(
            f"{home.root} has tables, and this instance of Dagster has no record of them: everything would be computed "
            f"again. Start './tidemark ui', or give Dagster the home's own instance: DAGSTER_HOME={home.dagster} and "
            f"{HOME_VARIABLE}={home.root}."
        ) from None


def _lies_in(instance: dg.DagsterInstance, home: Home) -> bool:
    try:
        return Path(instance.root_directory).resolve() == home.dagster.resolve()
    except dg.DagsterError:
        return False  # one that is in memory alone
