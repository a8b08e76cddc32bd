"""Which vectors have deltas that `vectors` does not hold yet, and in which files.

Belongs here: an index of what came since a version of `deltas`, by vector. It is small: names, and no payloads. Instead
of a version, none stands for before the first: everything has come since.
"""

from collections.abc import Collection

from tidemark.vectors.reading.answers import Key
from tidemark.vectors.reading.scan import Scan
from tidemark.vectors.reading.snapshot import NewFiles
from tidemark.vectors.tables import BUCKETS

# Buckets were made from so many versions at most, one each: more are of the past.
_VERSIONS = BUCKETS


class NewDeltas:
    """Which vectors have deltas that `vectors` does not hold, and in which files; each file is looked into once."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._seen: dict[int | None, set[str]] = {}
        self._files: dict[int | None, dict[Key, list[str]]] = {}

    def files_of(self, version: int | None, news: NewFiles, keys: Collection[Key]) -> dict[Key, list[str]]:
        """Those of the vectors that have any, since a version of `deltas`."""
        known, present = self._known(version, news)
        found = {key: [path for path in known[key] if path in present] for key in keys if key in known}
        return {key: paths for key, paths in found.items() if paths}

    def keys_of(self, version: int | None, news: NewFiles) -> list[Key]:
        """All vectors that have any, since a version of `deltas`."""
        known, present = self._known(version, news)
        return [key for key, paths in known.items() if not present.isdisjoint(paths)]

    def _known(self, version: int | None, news: NewFiles) -> tuple[dict[Key, list[str]], set[str]]:
        present = {file.path for file in news.files}
        if version not in self._seen and len(self._seen) >= _VERSIONS:
            self._seen, self._files = {}, {}
        seen, files = self._seen.setdefault(version, set()), self._files.setdefault(version, {})
        if new := sorted(present - seen):
            for path, namespace, vector_id in self._scan.keys_in(new, news.covered):
                files.setdefault((namespace, vector_id), []).append(path)
            seen.update(new)
        return files, present
