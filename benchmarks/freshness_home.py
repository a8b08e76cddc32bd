"""The homes of `bench freshness`, and the one write that is followed through them.

Belongs here: a home with tables, copies of it, the settings that make Spark and SQLite tell what they do, and sending.
Does not belong here: running anything on a home (`freshness_ways.py`).
"""

import os
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.freshness_hook.sitecustomize import FOLDER_VARIABLE
from tidemark import Delta, Level, Platform, Signal
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Below, Home

ROOT = Path(__file__).resolve().parent.parent
HOOK = Path(__file__).parent / "freshness_hook"
NAMESPACE = "shop"
SEED = 7
ENTITIES = 200
# The hours before the write that have data: as many as a quiet platform refreshes in an afternoon.
BASE_HOURS = 6
# Other namespaces have a few deltas in every one of these hours.
OTHERS_DELTAS = 12


@dataclass(frozen=True)
class Sent:
    """A write that was acknowledged, and by what its rows are known."""

    at: float  # seconds since 1970, when the last delta was on the disk
    delta_id: str
    entity_id: str


@dataclass(frozen=True)
class Notes:
    """Where Spark and SQLite write down what they do, in the turn that is counted."""

    root: Path

    events = Below("events", "Spark's event logs.")
    statements = Below("statements", "Times of the statements to SQLite, a file for each process.")

    def switch_on(self, home: Home) -> dict[str, str]:
        """Have every Spark of this home write its log; gives the variables for its processes."""
        for folder in (self.events, self.statements):
            folder.mkdir(parents=True, exist_ok=True)
        with home.settings_file.open("a") as file:
            file.write(
                "\n[spark.conf]\n"
                '"spark.eventLog.enabled" = "true"\n'
                f'"spark.eventLog.dir" = "{self.events.as_uri()}"\n'
                '"spark.eventLog.compress" = "false"\n'
                '"spark.eventLog.rolling.enabled" = "false"\n'
            )
        path = os.pathsep.join(filter(None, [str(HOOK), os.environ.get("PYTHONPATH")]))
        return {FOLDER_VARIABLE: str(self.statements), "PYTHONPATH": path}


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Of a command: this process's, and more."""
    return {**os.environ, **more}


def command(home: Home, *arguments: str) -> list[str]:
    """A command on a home, as a user types it."""
    return [str(ROOT / "tidemark"), "--home", str(home.root), *arguments]


def copy_of(home: Home, root: Path) -> Home:
    """A copy of a home at rest, which is a home like the first."""
    shutil.copytree(home.root, root, symlinks=True)
    return Home(root)


def send_base(home: Home, deltas: int, others: Sequence[str] = ()) -> None:
    """What a home holds before the write: views and buys of the last hours, and a few deltas of other namespaces."""
    chance = random.Random(SEED)  # noqa: S311 (made-up data)
    end_us = time.time_ns() // 1_000 - 2_000_000
    rows = [_signal(chance, NAMESPACE, f"base-{number}", end_us) for number in range(deltas)]
    rows += [_signal(chance, other, f"base-{number}", end_us) for other in others for number in range(OTHERS_DELTAS)]
    rows.sort(key=lambda delta: delta.event_ts)
    with Platform.open(home) as platform:
        producer = platform.producer("bench")
        for start in range(0, len(rows), 1_000):
            producer.write(rows[start : start + 1_000]).wait(Level.FLUSHED)
        platform.seal()


def send(home: Home, number: int, *, deltas: int = 1) -> Sent:
    """Views of one entity that was never seen before, as one write, sealed like that of `./tidemark send`."""
    now_us, entity = time.time_ns() // 1_000 - 1_000_000, f"fresh-{number}"
    rows = [
        Delta(NAMESPACE, "signal", f"{entity}-{place}", now_us - place, signal=Signal(entity, "view"))
        for place in range(deltas)
    ]
    with Platform.open(home) as platform:
        platform.producer("bench").write(rows).wait(Level.FLUSHED)
        at = time.time()
        platform.seal()
    return Sent(at, f"{entity}-0", entity)


def _signal(chance: random.Random, namespace: str, delta_id: str, end_us: int) -> Delta:
    event_us = end_us - chance.randrange(BASE_HOURS * HOUR_US)
    payload = Signal(f"item-{chance.randrange(ENTITIES)}", "view" if chance.random() < 0.8 else "buy")
    return Delta(namespace, "signal", delta_id, event_us, signal=payload)
