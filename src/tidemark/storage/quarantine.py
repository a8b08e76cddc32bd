"""The quarantine: folders of unreadable tables, kept as they were found.

Belongs here: moving one there, with a note that says why. Nothing reads them again, and only the operator deletes
them. Does not belong here: when a table cannot be relied on (`tables/known_table.py`), how it is built again.
"""

import shutil

from tidemark.model.timegrid import from_us
from tidemark.storage.home import Home
from tidemark.storage.privacy import make_directory, make_private


def set_aside(home: Home, table: str, why: str, now_us: int) -> None:
    """Move a table's folder into the quarantine, as it is, if there is anything to move."""
    path = home.lake / table
    if not path.exists() or not any(path.iterdir()):
        return
    target = home.quarantine / f"{table}-{from_us(now_us):%Y%m%dT%H%M%S%f}"
    make_directory(home.quarantine)
    with open(target.with_name(f"{target.name}.txt"), "w", opener=make_private) as note:
        note.write(f"{why}\n")
    shutil.move(path, target)
