"""Records that this process has read before: sensors look again and again, and a year of records takes half a minute.

Belongs here: keeping them for as long as the process lives. What is kept between processes is in
`resources/seen_records.py`.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import dagster as dg

from resources.record import Record

# By the number of their event, for each storage of events; see `Record.latest_by_partition`.
_seen: defaultdict[str, dict[int, Record]] = defaultdict(dict)
# Sensors are evaluated in threads: the second finds what the first has read, and none forgets what another looks at.
_looking = Lock()


@contextmanager
def seen_records(instance: dg.DagsterInstance) -> Iterator[dict[int, Record]]:
    """The records of this instance that were read before, to be added to; `forget_reused` comes before each look."""
    with _looking:
        yield _seen[instance.run_storage.get_run_storage_id()]  # type: ignore[attr-defined]
