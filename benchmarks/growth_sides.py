"""The questions that `bench growth` asks of a home, each in a process of its own.

Belongs here: the questions and how they are measured. Imports for one of them do not count in the memory of another.
"""

import io
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from tidemark.storage.home import HOME_VARIABLE, Home

ROUNDS = 5


class Measured(NamedTuple):
    """The cost of one question, and the answer."""

    cpu_s: float
    peak_bytes: int
    answer: dict[str, Any]


def _open(home: Home) -> dict[str, Any]:
    from tidemark import Platform
    from tidemark.tables.plans import durable_epochs

    with Platform.open(home, durable_epochs=lambda: durable_epochs(home)) as platform:
        return {"durable": platform.shards[0].durable_epoch, "streams": sorted(platform.watermarks())}


def _look(home: Home) -> dict[str, Any]:
    import dagster as dg

    from orchestration.instance import open_instance
    from orchestration.sensors import follow_manifest, reported_epochs

    with open_instance(home) as instance:
        asked = follow_manifest(dg.build_sensor_context(instance=instance))
        return {"durable": reported_epochs(instance)[0] - 1, "is_due": isinstance(asked, dg.RunRequest)}


STATUS = "status"
LOOKS: dict[str, Callable[[Home], dict[str, Any]]] = {"opening": _open, "a look of the sensor": _look}
ACTS = [*LOOKS, STATUS]


def look(act: str, root: Path) -> Measured:
    """Ask a home several times: the median of CPU-seconds."""
    home, spent = Home(root), []
    answer = LOOKS[act](home)
    for _ in range(ROUNDS):
        begun = time.process_time()
        answer = LOOKS[act](home)
        spent.append(time.process_time() - begun)
    return Measured(statistics.median(spent), _peak_bytes(), answer)


def status(root: Path) -> Measured:
    """The command, in this process, including its start."""
    from orchestration.cli.app import main

    said = io.StringIO()
    with redirect_stdout(said):
        main(["--home", str(root), "status", "--json"])
    cpu_s, found = time.process_time(), json.loads(said.getvalue())
    [shard] = found["shards"]
    answer = {
        "segments": shard["segments"],
        "rows": shard["rows"],
        "durable": shard["durable_epoch"],
        "pending": found["pending"]["segments"],
    }
    return Measured(cpu_s, _peak_bytes(), answer)


def _peak_bytes() -> int:
    """Peak memory of this process; not from `getrusage`, which also counts the memory of its parent."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    os.environ[HOME_VARIABLE] = sys.argv[2]
    home = Path(sys.argv[2])
    print(json.dumps((status(home) if sys.argv[1] == STATUS else look(sys.argv[1], home))._asdict()))
