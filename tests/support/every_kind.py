"""A few deltas from which every table of every example gets rows: what must go through each way of running them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from assets.tables import EVERY_TABLE
from assets.windows.catalog import derived_tables
from tests.support.batch import FORGETFUL
from tests.support.live import sample, signal, vector
from tidemark.model.timegrid import MINUTE_US
from tidemark.storage.home import Home
from tidemark.streams import load_streams
from tidemark.tables import lake_files

# A vector that was changed a few times is due.
SETTINGS = f"{FORGETFUL}[compaction]\nkeep_recent = 1\n"
ITEM = "item-1"
# What somebody does to an item, and when, in minutes: its visit is open when the hour ends.
LOOKED_AT, BOUGHT, LOOKED_AT_AGAIN = 5, 6, 55


def writes_of_every_kind(hour_us: int) -> list[list[Any]]:
    """Three writes, about an hour and the two after it: on time, the one that moves time on, and late ones."""

    def at(minutes: int) -> int:
        return hour_us + minutes * MINUTE_US

    def buy(delta_id: str, minutes: int) -> dict[str, Any]:
        bought = {"entity_id": ITEM, "signal": "buy", "count": 1, "weight": 2.5}
        return signal(delta_id, at=at(minutes)) | {"signal": bought}

    def edit(delta_id: str, op: str, minutes: int, **payload: Any) -> dict[str, Any]:
        return vector(delta_id, op, at=at(minutes), vector_id=ITEM, **payload)

    def temperature(delta_id: str, minutes: int) -> dict[str, Any]:
        return sample(delta_id, 4.5, at=at(minutes), sensor="temperature", van="a")

    on_time = [
        signal("looked", at=at(LOOKED_AT)),
        buy("bought", BOUGHT),
        signal("looked_again", at=at(LOOKED_AT_AGAIN)),
        edit("made", "create", 50, values=[1.0, 2.0], clock={"p": 1}),
        edit("changed_beside_it", "set_dims", 52, indices=[0], values=[3.0], clock={"q": 1}),
        edit("changed", "scale", 53, factor=2.0, clock={"p": 2, "q": 1}),
        temperature("cold", LOOKED_AT),
        {"no": "delta"},
    ]
    later = [signal("two_hours_later", at=at(120)), temperature("two_hours_later", 120)]
    return [on_time, later, [buy("bought_late", BOUGHT + 1), temperature("cold_late", LOOKED_AT + 1)]]


def tables_of(examples: Path) -> set[str]:
    """Every table of a home with these definitions; those of this process have none."""
    return {*EVERY_TABLE, *(derived.spec.name for derived in derived_tables(load_streams(examples)))}


def empty_tables(home: Home, tables: Iterable[str]) -> list[str]:
    """Those that have no rows, or are not there at all."""
    opened = {table: lake_files.open_table(home.lake / table) for table in sorted(tables)}
    return [name for name, table in opened.items() if table is None or not table.to_pyarrow_table().num_rows]
