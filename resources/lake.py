"""The lake: Delta tables by name, written in the few ways that are exactly-once (decision 0052, plans).

Belongs here: reading, appending, replacing, merging and maintaining a table with Spark. Does not belong here: the
declaration of a table (`tidemark/tables/table_spec.py`), the meaning of rows (`assets`), reading without a JVM
(`tidemark/tables/lake_files.py`). Every write has a number that the table stores, takes the table's lock, and is
fsynced; an exception from a write says nothing about its outcome, so the marker is read, and it decides.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from resources.spark_files import chosen, frame_over, write_files
from resources.spark_internals import forget_delta_logs
from resources.table_maintenance import add_columns, compact_files, delete_old_files
from resources.write_errors import LakeError, TableBusyError, WriteFailedError, said, write_errors
from tidemark.event_time.clock import system_clock
from tidemark.model.ranges import Range, Within
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.storage.privacy import file_mode, make_directory
from tidemark.storage.quarantine import set_aside
from tidemark.tables import lake_files
from tidemark.tables.known_table import Edit, KnownTable, KnownTableFile, app_id, current_edits, find_break, next_floor
from tidemark.tables.lake_commits import begin_generation, commit_files, delete_partitions
from tidemark.tables.lineage import Input, LineageFile
from tidemark.tables.new_files import NewFile, move_in, partition_value, staging_folder
from tidemark.tables.table_files import table_files
from tidemark.tables.table_spec import Column, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Column", "Lake", "LakeError", "TableSpec", "WriteFailedError"]

# A backfill of a month locks a table for minutes; a writer that waits longer waits for a process that hangs.
LOCK_TIMEOUT_S = 900.0
# Readers that started before a maintenance may still read the files it replaced.
RETENTION_HOURS = 168


class Lake:
    """The tables of one home. `spark` is called when a session is first needed; without it, nothing here needs one."""

    def __init__(
        self, home: Home, spark: "Callable[[], SparkSession] | None" = None, *, clock: Callable[[], int] = system_clock
    ) -> None:
        self.home = home
        self.clock = clock
        self._spark = spark
        self._locks: dict[str, FileLock] = {}

    @property
    def spark(self) -> "SparkSession":
        """The session; starts a JVM if none is running."""
        if self._spark is None:
            raise AssertionError("this lake was opened to be read and changed without a JVM")
        return self._spark()

    def path(self, table: str) -> Path:
        """The table's directory."""
        return self.home.lake / table

    def known(self, table: str) -> KnownTable:
        """The facts that are stored about a table."""
        return self.known_file(table).read()

    def known_file(self, table: str) -> KnownTableFile:
        """The file with these facts."""
        return KnownTableFile(self.home.plans, table)

    def lineage_file(self, table: str) -> LineageFile:
        """The file with the lineage of each partition."""
        return LineageFile(self.home.plans, table)

    @contextmanager
    def lock(self, table: str) -> Iterator[None]:
        """Lock a table against other writers, among all processes; the same holder may lock it again."""
        if table not in self._locks:
            path = self.home.plans / table / "lock"
            make_directory(path.parent)
            self._locks[table] = FileLock(path, mode=file_mode(), timeout=LOCK_TIMEOUT_S)
        try:
            self._locks[table].acquire()
        except Timeout as error:
            raise TableBusyError(
                f"Another process has been writing the table {table} for {LOCK_TIMEOUT_S:.0f} s "
                f"(lock {self._locks[table].lock_file}). Wait for it, or stop it."
            ) from error
        try:
            yield
        finally:
            self._locks[table].release()

    def read(self, table: str, version: int | None = None, *, within: Sequence[Within] | None = None) -> "DataFrame":
        """The rows of a table, as of a version if one is given; with `within`, those of any of these times.

        Only files that may hold such rows are opened, so that a small part of a large table is a small read.
        """
        path = self.path(table)
        return chosen(frame_over(self.spark, path, table_files(path, version, within)), within)

    def version(self, table: str) -> int | None:
        """Latest version, or None if there is no such table."""
        state = lake_files.table_state(self.path(table))
        return state.version if state else None

    def is_retained(self, table: str, version: int) -> bool:
        """Whether the files of a version surely still exist: maintenance deletes files that were replaced long ago."""
        committed_us = lake_files.commit_time_us(self.path(table), version)
        retention_us = RETENTION_HOURS * HOUR_US
        return committed_us is not None and self.clock() - committed_us < retention_us

    def edits(self, table: str) -> dict[int, Edit]:
        """Partitions, by start, in which somebody else has changed rows; writing one anew settles it."""
        return current_edits(self.home, table)

    def settle(self, spec: TableSpec) -> KnownTable:
        """Make the table exist and its generation right: a table that was tampered with continues under a new one."""
        with self.lock(spec.name):
            known = self.known(spec.name)
            if broken := find_break(self.path(spec.name), known):
                self.forget_cached_tables()
                seen = lake_files.highest_version(self.path(spec.name))
                set_aside(self.home, spec.name, broken.why, self.clock())
                floor = next_floor(known, seen)
                known = self.known_file(spec.name).write(
                    KnownTable(generation=known.generation + 1, number=known.number, edits=known.edits, floor=floor)
                )
            return self.ensure(spec) if known.version < 0 else self.widen(spec)

    def widen(self, spec: TableSpec) -> KnownTable:
        """Add missing columns to a table of an earlier version; they are null in its rows."""
        path, known = self.path(spec.name), self.known(spec.name)
        if {column.name for column in spec.columns} <= set(lake_files.columns(path)):
            return known
        self.known_file(spec.name).record_edits(path)
        add_columns(self.spark, path, spec)
        self._finish(spec, known.version, None)
        return self.known(spec.name)

    def ensure(self, spec: TableSpec) -> KnownTable:
        """Create the table if there is none, and record it as ours."""
        with self.lock(spec.name):
            lake_files.remove_leftovers(self.path(spec.name), now_s=time.time())
            if lake_files.table_state(self.path(spec.name)) is None:
                begin_generation(self.path(spec.name), spec, self.known(spec.name).floor)
                lake_files.sync_commits(self.path(spec.name), -1)
            return self.known_file(spec.name).record_commit(self.path(spec.name))

    def append_once(self, spec: TableSpec, rows: "DataFrame", *, number: int) -> None:
        """Append under the generation's `number`; a number that is already committed is not written again."""
        with self.lock(spec.name):
            app, path = app_id(spec.name, self.known(spec.name).generation), self.path(spec.name)

            def write(app: str) -> None:
                if (lake_files.marker(path, app) or 0) < number:
                    self._write_rows(spec, rows, app, number, None)

            self._commit(spec, app, number, write, plan_number=number)

    def replace(
        self,
        spec: TableSpec,
        rows: "DataFrame",
        *,
        hours: "Range | Sequence[int] | None",
        plan_number: int | None = None,
        made_from: Input | None = None,
    ) -> None:
        """Replace the partitions of a range (or the given ones, or all) by `rows`, in one commit.

        For a table of buckets, `hours` are numbers of buckets. An empty result clears them, which is right. With
        `plan_number` the commit has that plan's marker, as the first commit of a generation does; without it the marker
        of plans stays as it is. `made_from` is the version of the input that the rows were computed from; it is stored
        for each partition.
        """
        generation = self.known(spec.name).generation
        app = app_id(spec.name, generation) if plan_number is not None else f"{app_id(spec.name, generation)}/replace"
        number = plan_number if plan_number is not None else self._unused_number(spec, app)

        def is_rewritten(start: int) -> bool:
            return hours is None or (hours.holds(start) if isinstance(hours, Range) else start in hours)

        def write(app: str) -> None:
            self._write_rows(spec, rows, app, number, is_rewritten)

        made = spec.grain.starts(hours.start_us, hours.end_us) if isinstance(hours, Range) else hours
        if made is None:
            made = range(spec.buckets)
        self._commit(
            spec, app, number, write, plan_number=plan_number, rewritten=is_rewritten, made_from=made_from, made=made
        )

    def replace_files(
        self,
        spec: TableSpec,
        write: Callable[[], Sequence[NewFile]],
        *,
        anew: Collection[int],
        made_from: Input,
        made: Sequence[int],
    ) -> None:
        """Replace buckets by files that `write` puts into the table's directory, in one commit, if there are any.

        They are the buckets that the files are of, and those `anew`, which are empty if there is no file of them. All
        buckets `made` are made from `made_from` afterwards: also those in which nothing was new. A file that is not
        committed in the end is nobody's: maintenance deletes it.
        """
        path, buckets = self.path(spec.name), list[int]()

        def write_and_commit(app: str) -> None:
            files = write()
            buckets.extend(sorted({*anew, *(file.partition for file in files)}))
            table = lake_files.open_table(path)
            if table is not None and buckets:
                commit_files(table, spec, files, app, number, replaced=buckets)

        with self.lock(spec.name):
            app = f"{app_id(spec.name, self.known(spec.name).generation)}/replace"
            number = self._unused_number(spec, app)
            self._commit(
                spec,
                app,
                number,
                write_and_commit,
                rewritten=lambda bucket: bucket in buckets,
                made_from=made_from,
                made=made,
            )

    def drop(self, spec: TableSpec, before_us: int) -> None:
        """Drop the partitions that start before a time, in one commit, if there are any. Needs no JVM.

        Tables made from them have not changed by that, so the dropped partitions count as final and not as changed.
        """
        with self.lock(spec.name):
            path = self.path(spec.name)
            table = lake_files.open_table(path)
            if table is None or not any(start < before_us for start in lake_files.partitions(path)):
                return
            app = f"{app_id(spec.name, self.known(spec.name).generation)}/drop"
            number = self._unused_number(spec, app)
            self._commit(
                spec,
                app,
                number,
                lambda app: delete_partitions(table, spec.partition_by, before_us, app, number),
                rewritten=lambda start: start < before_us,
                is_settled=True,
            )

    def rewrite(self, spec: TableSpec, rows: "DataFrame", *, hours: Sequence[int], purpose: str) -> None:
        """Write partitions again, in one commit, with the same rows less data that nothing else is made of.

        So tables made from them stay up to date; the commit's marker names the `purpose`. And `rows` come from the
        table itself: edits by other programs remain edits afterwards. Read them under the table's lock.
        """
        app = f"{app_id(spec.name, self.known(spec.name).generation)}/{purpose}"
        number = self._unused_number(spec, app)

        def write(app: str) -> None:
            self._write_rows(spec, rows, app, number, lambda start: start in hours)

        self._commit(spec, app, number, write, is_settled=True)

    def maintain(self, spec: TableSpec, *, closed_before_us: int) -> int:
        """Compact the partitions that end by `closed_before_us`, then delete files older than the retention.

        Buckets are left as they are: each was written whole, in as few files as it takes. Returns the version
        afterwards.
        """
        with self.lock(spec.name):
            before, path = self.settle(spec).version, self.path(spec.name)
            self.known_file(spec.name).record_edits(path)
            try:
                if not spec.buckets:
                    compact_files(self.spark, path, spec, closed_before_us)
                delete_old_files(self.spark, path, spec, RETENTION_HOURS)
            finally:
                # Also after an error: everything committed until then is ours.
                version = self._finish(spec, before, None)
                self.lineage_file(spec.name).record(path)
            return version

    def forget_cached_tables(self) -> None:
        """Make Spark read the disk again: it caches tables by path, even one that was deleted meanwhile."""
        forget_delta_logs(self.spark)

    def _unused_number(self, spec: TableSpec, app: str) -> int:
        """A number that no other commit has: a run that was killed may have left its write to a JVM that finishes it.

        Its rows must not be taken for ours. The clock is only a source of an unused number.
        """
        return max((lake_files.marker(self.path(spec.name), app) or 0) + 1, self.clock())

    def _write_rows(
        self, spec: TableSpec, rows: "DataFrame", app: str, number: int, is_replaced: Callable[[int], bool] | None
    ) -> None:
        """Have Spark write rows as files, and commit these in place of the partitions that they replace.

        Without `is_replaced` the rows are added. Spark never commits: what it still writes for a run that was killed
        is no part of the table.
        """
        path = self.path(spec.name)
        with staging_folder(path) as folder:
            write_files(rows, spec, folder)
            files = move_in(path, folder, spec)
        present = lake_files.partitions(path) if is_replaced else {}
        if is_replaced and (outside := {file.partition for file in files if not is_replaced(file.partition)}):
            raise WriteFailedError(
                f"Rows of {spec.name} lie outside of the partitions that are written: "
                f"{partition_value(min(outside), is_bucket=spec.buckets > 0)}. Nothing was committed."
            )
        table = lake_files.open_table(path)
        if table is None:
            raise WriteFailedError(f"The table {spec.name} vanished while it was being written. Run the command again.")
        replaced = [start for start in present if is_replaced and is_replaced(start)]
        commit_files(table, spec, files, app, number, replaced=replaced)

    def _commit(
        self,
        spec: TableSpec,
        app: str,
        number: int,
        write: Callable[[str], None],
        *,
        plan_number: int | None = None,
        rewritten: Callable[[int], bool] | None = None,
        made_from: Input | None = None,
        made: Sequence[int] = (),
        is_settled: bool = False,
    ) -> None:
        with self.lock(spec.name):
            before = self.version(spec.name)
            if before is None:
                raise WriteFailedError(
                    f"There is no table {spec.name} to write to. Run the same command again: it will be created."
                )
            self.known_file(spec.name).record_try(self.path(spec.name), before)
            try:
                write(app)
            except write_errors() as error:
                # Either the marker has this very number, or nothing of ours was committed.
                if lake_files.marker(self.path(spec.name), app) != number:
                    raise WriteFailedError(
                        f"Writing the table {spec.name} failed, and nothing of it was committed: {said(error)}"
                    ) from error
            self._finish(spec, before, plan_number, rewritten)
            settled_at = lake_files.version_of(self.path(spec.name), before, app, number) if is_settled else None
            self.lineage_file(spec.name).record(
                self.path(spec.name), made_from=made_from, made=made, settled_at=settled_at
            )

    def _finish(
        self, spec: TableSpec, before: int, plan_number: int | None, rewritten: Callable[[int], bool] | None = None
    ) -> int:
        path = self.path(spec.name)
        lake_files.sync_commits(path, before)
        return self.known_file(spec.name).record_commit(path, number=plan_number, rewritten=rewritten).version
