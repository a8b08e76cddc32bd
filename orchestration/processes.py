"""Whether a process still runs: ids are reused, so an id alone says nothing.

Belongs here: what `/proc` says of a process. It imports nothing else, and knows nothing of runs (`run_launcher.py`).
"""

import os
import time
from pathlib import Path

PROC = Path("/proc")
# Wall clocks are corrected now and then. A process that began so much later than its run only reuses its number.
CLOCK_STEP_S = 60.0
DEAD_STATES = "ZX"  # killed, and not yet reaped by its parent


def name_of(pid: int) -> str:
    """A process by its id and its start, by the system's own clock, which nobody corrects: ids are reused."""
    fields = _fields(pid)
    return f"{pid} {fields[19] if fields else ''}"


def lives(name: str) -> bool:
    """Whether the process of this name still runs."""
    fields = _fields(int(name.partition(" ")[0]))
    return fields is not None and fields[0] not in DEAD_STATES and fields[19] == name.partition(" ")[2]


def is_alive(pid: int, *, since: float) -> bool:
    """Whether the process that had this id at that time still runs; ids are reused."""
    fields = _fields(pid)
    if fields is None:
        return False
    uptime_s = float((PROC / "uptime").read_text().split()[0])
    age_s = uptime_s - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in DEAD_STATES and time.time() - age_s <= since + CLOCK_STEP_S


def _fields(pid: int) -> list[str] | None:
    """What the system says of a process: its state first, and 19 fields later its start."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything.
    return text.rpartition(")")[2].split()
