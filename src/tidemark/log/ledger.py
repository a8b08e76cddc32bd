"""A ledger: a durable map from text to bytes, where a write costs as much as it changes and opening costs nothing.

Belongs here: which runs there are, which of them answers, and when runs are merged. The format of a run is in
`ledger_runs.py`.

Changes are written as new runs; a file is never changed once written. The ledger has no file that lists its runs:
`write` returns the list, the owner saves it in its own state file, and replacing that file is the commit. A crash
before that leaves unlisted files, and `remove_unlisted` deletes them.

Every write makes a new tier, and newer tiers win. Tiers are merged when the newer ones together have grown as large as
the next older one. So tiers at least double in size, there are few of them, and a change is rewritten once per
doubling. A merge goes on in steps over many writes. Each step moves the lowest remaining keys of the merging tiers
to one new run of the oldest of these tiers, and narrows the ranges of the inputs. After each step the list of runs is
complete and consistent, so a merge interrupted by a restart goes on where it was.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from tidemark.log.ledger_runs import SUFFIX, Cursor, RunBuilder, Runs, Sizes
from tidemark.log.run_info import RunInfo
from tidemark.storage.disk import Disk

__all__ = ["Ledger", "RunInfo", "Sizes"]


class Ledger:
    """See above. `write`, `adopt`, `remove_unlisted` and `items` belong to one thread; any thread may `get`."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        runs: Sequence[RunInfo] = (),
        sizes: Sizes | None = None,
        *,
        incarnation: int = 0,
    ) -> None:
        self._disk, self._directory = disk, directory
        self._sizes = sizes or Sizes()
        self._runs = Runs(disk, directory, self._sizes)
        self._view = _View(runs)
        self._written: list[RunInfo] = []  # by the last `write`, until it is adopted
        self._prefix = f"{incarnation:010d}-"  # two processes that both believe they own it never write the same file
        self._next_number: int | None = None  # of the next file; unknown until the first write

    @property
    def runs(self) -> list[RunInfo]:
        """The list that was adopted last."""
        return list(self._view.runs)

    def get(self, key: str) -> bytes | None:
        """The value of `key` in the adopted runs; None if it has none."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The values of those keys that have one, all of them from the same list of runs."""
        wanted = sorted(set(keys))  # neighbours lie in the same block
        while True:
            view = self._view
            try:
                found = ((key, self._find(view, key)) for key in wanted)
                return {key: value for key, value in found if value is not None}
            except FileNotFoundError as error:
                # A run may be removed during a read, but only after a list without it was adopted.
                if view is self._view:
                    raise self._missing(view, error) from error

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Everything in the adopted runs, in the order of keys."""
        view = self._view
        try:
            for chunk in _merged([Cursor(self._runs, tier) for tier in reversed(view.tiers)]):
                yield from chunk
        except FileNotFoundError as error:
            raise self._missing(view, error) from error

    def write(self, changes: Mapping[str, bytes]) -> list[RunInfo]:
        """Write these changes durably and continue merging; return the list of runs to save and then to adopt.

        Until `adopt`, reads show the state before. A list that is never adopted is forgotten: the next `write`
        begins from the adopted one again, and must be given those changes again.
        """
        self._begin_writing()
        runs = list(self._view.runs)
        before = set(runs)
        runs += self._changed(changes, max((run.tier for run in runs), default=0) + 1)
        size = sum(run.bytes for run in runs if run not in before)
        # A change is rewritten about once for every second tier below it, so this write does that much of it now. If
        # merges fall behind, there are more tiers, and more is done. Small changes still do one step.
        budget = self._sizes.run + size * (len({run.tier for run in runs}) // 2 + 1)
        view = _View(runs)
        try:
            view = self._merge(view, budget)
        except FileNotFoundError as error:
            raise self._missing(view, error) from error
        self._written = list(view.runs)
        if not before.issuperset(self._written):
            self._disk.sync_directory(self._directory)
        return list(self._written)

    def adopt(self, runs: Sequence[RunInfo]) -> None:
        """The owner has saved this list: reads show it from now on."""
        self._view, self._written = _View(runs), []

    def remove_unlisted(self) -> None:
        """Delete runs that are in no list: left by a crash, or merged away.

        Call it only when the adopted list would survive a power cut. If the state file was read at a start, sync its
        directory first.
        """
        listed = {run.file for run in (*self._view.runs, *self._written)}
        for name in self._disk.list(self._directory):
            if name.endswith(SUFFIX) and name not in listed:
                self._disk.remove(self._directory / name)

    def _find(self, view: "_View", key: str) -> bytes | None:
        for run in view.candidates(key):
            value = self._runs.find(run, key)
            if value is not None:
                return value
        return None

    def _missing(self, view: "_View", error: FileNotFoundError) -> Exception:
        name = Path(str(error.filename)).name
        lost = next((run for run in view.runs if run.file == name), None)
        return self._runs.damage(lost, "it is missing") if lost else error

    def _begin_writing(self) -> None:
        """Find unused names, once per start: unlisted files may still be there."""
        if self._next_number is None:
            self._disk.make_directory(self._directory)
            names = [*self._disk.list(self._directory), *(run.file for run in self._view.runs)]
            mine = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
            numbers = (name.removeprefix(self._prefix) for name in mine if name.startswith(self._prefix))
            self._next_number = max((int(number) for number in numbers if number.isdecimal()), default=0) + 1

    def _changed(self, changes: Mapping[str, bytes], tier: int) -> Iterator[RunInfo]:
        """The changes as runs of a new tier."""
        builder = RunBuilder(self._sizes.block)
        for key in sorted(changes):
            builder.add(key, changes[key])
            if builder.size >= self._sizes.run:
                yield self._store(builder, tier)
                builder = RunBuilder(self._sizes.block)
        if builder.size:
            yield self._store(builder, tier)

    def _store(self, builder: RunBuilder, tier: int) -> RunInfo:
        # Never used twice in one start, not even after an error: a reader may have the old file in its cache.
        number = self._next_number or 1
        self._next_number = number + 1
        return self._runs.store(builder, f"{self._prefix}{number:010d}{SUFFIX}", tier)

    def _merge(self, view: "_View", budget: int) -> "_View":
        """Merge about this many bytes. Small merges come first: they are the newest."""
        while True:
            view = _planned(view)
            merging = [run.into for run in view.runs if run.into is not None]
            if not merging or budget <= 0:
                return view
            view, written = self._step(view, max(merging))
            budget -= written

    def _step(self, view: "_View", into: int) -> "tuple[_View, int]":
        """Merge the lowest remaining keys of one merge, as many as fit into a run."""
        inputs = [run for run in view.runs if run.into == into]
        cursors = [Cursor(self._runs, list(tier)) for _, tier in groupby(inputs, lambda run: run.tier)]
        builder = RunBuilder(self._sizes.block)
        for chunk in _merged(cursors):
            for key, value in chunk:
                builder.add(key, value)
            if builder.size >= self._sizes.run:
                break
        output = self._store(builder, into)
        left = [run for cursor in cursors for run in cursor.left()]
        others = [run for run in view.runs if run.into != into]
        return _View([*others, output, *left]), max(output.bytes, builder.size)


class _View:
    """An immutable list of runs, arranged for lookups."""

    def __init__(self, runs: Iterable[RunInfo]) -> None:
        self.runs = tuple(sorted(runs, key=lambda run: (run.tier, run.first)))
        tiers = [list(tier) for _, tier in groupby(self.runs, lambda run: run.tier)]
        self.tiers = tiers[::-1]  # the newest first
        self._lasts = [[run.last for run in tier] for tier in self.tiers]

    def candidates(self, key: str) -> Iterator[RunInfo]:
        """The runs that may contain `key`, the newest first."""
        for tier, lasts in zip(self.tiers, self._lasts, strict=True):
            at = bisect_left(lasts, key)
            if at < len(tier) and tier[at].first <= key:
                yield tier[at]


def _planned(view: _View) -> _View:
    """The same runs; tiers that are no larger than all newer ones together are marked to be merged with those."""
    busy = {run.into for run in view.runs} | {run.tier for run in view.runs if run.into is not None}
    size, oldest = 0, None
    for tier in view.tiers:
        if tier[0].tier in busy:
            break
        tier_size = sum(run.bytes for run in tier)
        if tier_size <= size:
            oldest = tier[0].tier
        size += tier_size
    if oldest is None:
        return view
    return _View(replace(run, into=oldest) if run.tier >= oldest else run for run in view.runs)


def _merged(cursors: Sequence[Cursor]) -> Iterator[list[tuple[str, bytes]]]:
    """All pairs in the order of keys, some at a time; of two values the later cursor's wins."""
    while ends := [cursor.last for cursor in cursors if cursor.last is not None]:
        bound = min(ends)
        chunk: dict[str, bytes] = {}
        for cursor in cursors:
            if cursor.last is not None:
                chunk.update(cursor.take(bound))
        yield sorted(chunk.items())
