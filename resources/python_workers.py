"""How the Python workers of Spark start: `spark.python.daemon.module` names this module.

Belongs here: settings that must be made before the first worker is forked, and nothing that computes.

Spark puts its own copy of pyspark, as a zip, before everything else on a worker's path. Before every task a worker
makes Python forget its cache of the folders on its path, and Python 3.11 then reads the directory of that zip
again, once for each package that was imported from it: a fifth of a second of each task, whatever it does. The same
pyspark is installed as plain files (Spark's jars come with it), so these are used instead.
"""

import os
import sys

_ARCHIVES = (".zip", ".jar")
# Arrow's memory, set before it is first used: memory that a batch gave back is kept for the next one for ten seconds,
# and taken from the system in large pages. Otherwise the system clears the same megabytes again and again, one small
# page after the other, which was a fifth of the time of a task that decodes lists of numbers.
_MEMORY = {"MIMALLOC_PURGE_DELAY": "10000", "MIMALLOC_ALLOW_LARGE_OS_PAGES": "1"}


def leave_archives_out() -> None:
    """Remove archives from the path, and Python's cache of their contents."""
    archives = [entry for entry in sys.path if entry.endswith(_ARCHIVES)]
    sys.path[:] = [entry for entry in sys.path if entry not in archives]
    for known in [known for known in sys.path_importer_cache if known.startswith(tuple(archives))]:
        del sys.path_importer_cache[known]


if __name__ == "__main__":
    leave_archives_out()
    for name, value in _MEMORY.items():
        os.environ.setdefault(name, value)
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
