"""Named steps at which a test may kill the process.

Belongs here: the list of names, and the one call that marks a step. A step is named where a crash would leave
something half done; `tests/chaos` walks through all of them. Set `TIDEMARK_FAILPOINT=name` or `name:3` (the third
time) and the process dies there by SIGKILL, as if the machine had failed: no `finally`, no flush.
"""

import os
import signal

FAILPOINTS = (
    "log.appended",  # the frame is in the page cache, not on the disk; nothing is acknowledged
    "log.synced",  # the frame is on the disk; nothing is acknowledged yet
    "seal.segment_written",  # the segment is complete under its temporary name
    "seal.segment_named",  # the segment has its name, the manifest does not know it
    "seal.manifest_appended",  # the manifest names the segment, the log still has the same writes
    "seal.ledger_written",  # the producers in the file are written, and no state names them
    "seal.log_removed",  # the log file is gone; no caller knows that it is sealed
    "plan.written",  # the plan is fixed, nothing of it is committed
    "dead_letters.committed",  # first of the two commits of a plan
    "deltas.committed",  # second of the two; it is not recorded
    "rollup.committed",  # a rollup's rows are in its table; it is not recorded
    "index.parts_committed",  # the parts of an index are in their tables; the pointer names the old ones
    "retain.raised",  # the log refuses older events; nothing is decided, nothing is dropped
    "retain.decided",  # it is decided what to drop; all of it is still there
    "retain.dropped",  # the first table has dropped its partitions; the others still have theirs
    "clock.recorded",  # a reset of the clock is in force; no shard's log knows of it
    "clock.logged",  # all shards know; tables may have recorded watermarks beyond it
    "compact.cut",  # the log refuses older changes to vectors; none of them is final yet
    "compact.checkpoints",  # checkpoints that were due are in their table; no base is
    "compact.bases",  # bases are in their table; every payload is still there
    "compact.judged",  # bases passed their check; every payload is still there
    "compact.removed",  # payloads are gone; it is not recorded
    "record.logged",  # the record is in the orchestrator's storage; the run is not over
)

_seen: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Mark that the step `name` has been reached; die here if the environment says so."""
    wanted = os.environ.get("TIDEMARK_FAILPOINT")
    if not wanted:
        return
    step, _, nth = wanted.partition(":")
    if step not in FAILPOINTS:
        raise ValueError(f"TIDEMARK_FAILPOINT names {step!r}; the steps are {', '.join(FAILPOINTS)}")
    if step != name:
        return
    _seen[name] = _seen.get(name, 0) + 1
    if _seen[name] == int(nth or 1):
        os.kill(os.getpid(), signal.SIGKILL)
