"""What every asset says about its table to the orchestrator, in addition to its record.

Belongs here: metadata made from a `TableSpec`. Does not belong here: anything about one run.
"""

from typing import Any

import dagster as dg

from resources.lake import TableSpec
from resources.record import Record
from tidemark.storage.home import Home

OWNERS = ["team:tidemark"]
KINDS = {"spark", "deltalake"}


def table_metadata(spec: TableSpec) -> dict[str, Any]:
    """Name, columns and location of the table, as the orchestrator's pages show them."""
    columns = [
        dg.TableColumn(
            column.name,
            column.sql,
            description=column.comment,
            constraints=dg.TableColumnConstraints(nullable=not column.is_required),
        )
        for column in spec.columns
    ]
    return {
        "dagster/table_name": spec.name,
        "dagster/column_schema": dg.TableSchema(columns),
        "dagster/uri": (Home.locate().lake / spec.name).as_uri(),
    }


def data_version_tags(record: Record) -> dict[str, str]:
    """The version of the partition's data; it changes with every commit that touches the partition."""
    return {"dagster/data_version": f"{record.generation}.{record.table_version}"}
