"""`checksum`: whether two homes, or one home at two times, have the same rows.

Belongs here: displaying it. How rows are summed up is in `tidemark/tables/table_checksums.py`.
"""

from dataclasses import asdict

from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, console, table
from tidemark.observe.lake_status import table_names
from tidemark.storage.home import Home
from tidemark.tables.lake_files import quiet_database
from tidemark.tables.table_checksums import checksum as checksum_of


@command
@as_json
def checksum(home: Home, as_json: bool) -> None:
    """Rows and checksum of each table, independent of the order of rows and of their files."""
    with quiet_database() as database:
        found = {name: checksum_of(home.lake / name, database=database) for name in table_names(home)}
    if as_json:
        answer_json({name: asdict(checked) for name, checked in found.items()})
        return
    rows = table("Checksums", "table", "rows", "sha256", numbers=("rows",))
    for name, checked in found.items():
        rows.add_row(name, f"{checked.rows:,}", checked.sha256)
    console().print(rows)
