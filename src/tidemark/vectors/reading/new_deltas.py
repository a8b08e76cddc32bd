"""Which vectors have deltas that are not in `vectors` yet, and in which files.

Belongs here: an index of the deltas since a version of `deltas`, by vector. It is small: names, and no payloads. None
in place of a version means before the first: all deltas are new.
"""

from collections.abc import Collection

from tidemark.vectors.reading.answers import Key
from tidemark.vectors.reading.scan import Scan
from tidemark.vectors.reading.snapshot import NewFiles
from tidemark.vectors.tables import BUCKETS

# Buckets were made from at most this many versions, one each: any more are outdated.
_VERSIONS = BUCKETS


class NewDeltas:
    """Which vectors have deltas that are not in `vectors`, and in which files; each file is read once."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._seen: dict[int | None, set[str]] = {}
        self._files: dict[int | None, dict[Key, list[str]]] = {}

    def files_of(self, version: int | None, new_files: NewFiles, keys: Collection[Key]) -> dict[Key, list[str]]:
        """Those of the vectors that have any, since a version of `deltas`."""
        known, present = self._known(version, new_files)
        found = {key: [path for path in known[key] if path in present] for key in keys if key in known}
        return {key: paths for key, paths in found.items() if paths}

    def keys_of(self, version: int | None, new_files: NewFiles) -> list[Key]:
        """All vectors that have any, since a version of `deltas`."""
        known, present = self._known(version, new_files)
        return [key for key, paths in known.items() if not present.isdisjoint(paths)]

    def _known(self, version: int | None, new_files: NewFiles) -> tuple[dict[Key, list[str]], set[str]]:
        present = {file.path for file in new_files.files}
        if version not in self._seen and len(self._seen) >= _VERSIONS:
            self._seen, self._files = {}, {}
        seen, files = self._seen.setdefault(version, set()), self._files.setdefault(version, {})
        if unread := sorted(present - seen):
            for path, namespace, vector_id in self._scan.keys_in(unread, new_files.covered):
                files.setdefault((namespace, vector_id), []).append(path)
            seen.update(unread)

        return files, present
