"""Resetting the clock of a home whose log was written under a wrong one (C15).

Belongs here: the steps. `tidemark/shard_state/clock_reset.py` says what a reset means.

1. The reset is recorded, under the locks of all shards. From here on it is in force, whatever happens.
2. The shards are opened, and log it; if this is interrupted, the next process that opens them does it.
3. Recorded watermarks of tables fall to now. `./tidemark clock` shows those that did not; repeat the reset then.
"""

from collections.abc import Callable
from contextlib import ExitStack

from tidemark.coordinator.platform import Platform
from tidemark.coordinator.shard import lock_process
from tidemark.event_time.clock import system_clock
from tidemark.shard_state.clock_reset import record_reset
from tidemark.shard_state.recovery import ShardFiles
from tidemark.storage.failpoints import failpoint
from tidemark.storage.home import Home
from tidemark.tables.table_watermarks import TableWatermarkFile, tables_with_watermarks


def reset_clock(home: Home, *, clock: Callable[[], int] = system_clock) -> None:
    """Declare that nothing so far is later than now, and go on from there."""
    with ExitStack() as stack:
        for shard in range(home.settings.shards):
            stack.callback(lock_process(ShardFiles(shard, home.log(shard), home.segments(shard))).release)
        at_us = clock()
        record_reset(home, at_us)
    failpoint("clock.recorded")
    with Platform.open(home, clock=clock):
        failpoint("clock.logged")
    for table in tables_with_watermarks(home.plans):
        TableWatermarkFile(home.plans, table).fall_to(at_us)
