"""An owner of a ledger, and changes for it."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

import msgspec

from tidemark.log.ledger import Ledger, RunInfo, Sizes
from tidemark.storage.disk import Disk

HOME = Path("/home")
LEDGER = HOME / "ledger"
STATE = HOME / "runs.json"
# A few pairs fill a block, a few blocks a run, and one step of a merge is rarely enough.
SMALL = Sizes(block=60, run=200, cache=500, read=150)


class Owner:
    """Keeps a ledger as a shard does: the list of runs is in its own file, and replacing that file is the commit."""

    def __init__(self, disk: Disk, sizes: Sizes = SMALL) -> None:
        self._disk = disk
        disk.make_directory(HOME)
        disk.sync_directory(HOME)  # what is read below may be there only in the cache
        runs = []
        if STATE.name in disk.list(HOME):
            runs = msgspec.json.decode(disk.read(STATE), type=list[RunInfo])
        self.ledger = Ledger(disk, LEDGER, runs, sizes)
        self.ledger.remove_unlisted()

    def commit(self, changes: Mapping[str, bytes]) -> None:
        runs = self.ledger.write(changes)
        self._disk.replace(STATE, msgspec.json.encode(runs))
        self.ledger.adopt(runs)
        self.ledger.remove_unlisted()

    def content(self) -> dict[str, bytes]:
        return dict(self.ledger.items())


def many(random: Random, count: int, keys: int, size: int = 20) -> dict[str, bytes]:
    """Changes of so many producers out of all."""
    return {f"producer-{number:07d}": random.randbytes(size) for number in random.sample(range(keys), count)}


def tiers_of(ledger: Ledger) -> int:
    return len({run.tier for run in ledger.runs})


def merge_everything(disk: Disk, owner: Owner) -> None:
    """Let a merge of all runs be under way, of which nothing is done yet."""
    oldest = min(run.tier for run in owner.ledger.runs)
    runs = [msgspec.structs.replace(run, into=oldest) for run in owner.ledger.runs]
    disk.replace(STATE, msgspec.json.encode(runs))
    owner.ledger.adopt(runs)
