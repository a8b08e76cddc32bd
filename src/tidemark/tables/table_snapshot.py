"""One table at its latest version, with its stored facts, without a JVM; and whether it has changed since.

Belongs here: opening a table together with its stored facts, in the order that keeps them consistent. Does not belong
here: which of its files or rows a question needs (`counts`, `vectors`).
"""

from functools import cached_property

from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile, app_id
from tidemark.tables.lineage import Lineage, LineageFile, follow


class TableSnapshot:
    """One table as it was when this was made."""

    def __init__(self, home: Home, name: str) -> None:
        self.name, self.path = name, home.lake / name
        known, lineage = KnownTableFile(home.plans, name), LineageFile(home.plans, name)
        self._facts = (known.path, lineage.path)
        # The facts first: they are written after the commit that they describe, so they are never ahead of the table.
        self._file_marks = tuple(map(lake_files.file_mark, self._facts))
        self._stored_lineage = lineage.read()
        self.generation = known.read().generation
        self.opened = lake_files.open_table(self.path)
        self.version = self.opened.version() if self.opened else None
        self._commit = lake_files.file_mark(lake_files.commit_file(self.path, self.version or 0))

    def is_current(self) -> bool:
        """Whether the table is unchanged since; it takes a few looks at the disk."""
        if self.version is None:
            return not (self.path / "_delta_log").is_dir()
        return (
            not lake_files.commit_file(self.path, self.version + 1).exists()
            and lake_files.file_mark(lake_files.commit_file(self.path, self.version)) == self._commit
            and tuple(map(lake_files.file_mark, self._facts)) == self._file_marks
        )

    @property
    def number(self) -> int:
        """Number of the last plan that it holds; 0 if it holds none."""
        return int(self.opened.transaction_version(app_id(self.name, self.generation)) or 0) if self.opened else 0

    @cached_property
    def lineage(self) -> Lineage:
        """The lineage of each partition, as of this version."""
        if self.opened is None:
            return Lineage()
        state = lake_files.TableState(str(self.opened.metadata().id), self.opened.version())
        return follow(self._stored_lineage, self.path, self.name, state)
