"""Small tables as SQL text: a query that says its rows needs no view of them, and Spark evaluates them while it plans.

Belongs here: the text. Does not belong here: what the tables hold (`evidence.py`), the queries (`runner.py`).
"""

from datetime import datetime
from typing import Any

import pyarrow as pa

from expectations.conditions import literal
from tidemark.model.ranges import sql_timestamp
from tidemark.model.timegrid import to_us
from tidemark.tables.table_spec import TIMESTAMP, sql_type

# Rows that are said in the text of a query; more are a view.
FEW_ROWS = 1_000
_KINDS = {pa.string(), pa.int32(), pa.int64(), pa.bool_(), TIMESTAMP}


def is_small(table: pa.Table) -> bool:
    """Whether a table has few rows, and only values that are easily said."""
    return table.num_rows <= FEW_ROWS and {field.type for field in table.schema} <= _KINDS


def as_sql(table: pa.Table) -> str:
    """A query with the rows of a table, in its types; also if it has none."""
    names = [f"`{name}`" for name in table.column_names]
    typed = ", ".join(
        f"CAST({name} AS {sql_type(field.type)}) AS {name}" for name, field in zip(names, table.schema, strict=True)
    )
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    values = ", ".join(f"({', '.join(map(_value, row))})" for row in rows)
    if not values:
        values = f"({', '.join('NULL' for _ in names)})"
    query = f"SELECT {typed} FROM VALUES {values} AS said({', '.join(names)})"
    return query if table.num_rows else f"{query} WHERE false"


def _value(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case datetime():
            return sql_timestamp(to_us(value))
    return literal(value)
