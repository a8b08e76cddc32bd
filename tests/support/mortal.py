"""A process that writes to a home under load until it is killed, and one that brings such processes into the world.

Starting Python and importing everything takes longer than most of these lives. So a nursery imports it all, opens
nothing, and forks one life after the other. A life says what it was told, a line at a time, each in one system call:
what it has said before it is killed is heard, whole.
"""

import asyncio
import os
import select
import signal as signals
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import Struct

from tests.support.live import TEN_O_CLOCK, signal
from tidemark import Platform
from tidemark.coordinator.aio import wait_flushed
from tidemark.coordinator.handles import WriteHandle
from tidemark.coordinator.slots import shard_of_slot, slots_of
from tidemark.model.deltas import Level
from tidemark.model.log_schema import SENT_SCHEMA
from tidemark.model.shard_errors import WaitTimeoutError
from tidemark.storage.home import Home

THREADED, ASYNCHRONOUS = ("web", "pos"), ("app", "import")
PRODUCERS = (*THREADED, *ASYNCHRONOUS)
DELTAS_PER_WRITE = 3
# Every so many writes, the first delta is a copy of one in the write before.
COPY_EVERY = 5
# Nobody writes for so long: the process of a test that was stopped itself ends here.
LIFE_LIMIT_S = 300
# What is loaded when the first write comes, the first segment, the first look at the lake: half a second of a life.
LOADED_LATE = ("pandas", "pyarrow.dataset", "tidemark.tables.plans")
# How often whoever waits for a word looks whether it is time to kill.
LOOK_S = 0.002

Stream: TypeAlias = tuple[int, str]  # shard and producer: writes are numbered by both


class Orders(Struct, frozen=True):
    """What a life should do."""

    home: str
    seed: int
    acknowledged: dict[str, dict[int, int]]  # producer → shard → last write that was told to be flushed
    writes: int | None = None  # of each stream; then it shuts down. Without it, it goes on until it is killed
    failpoint: str | None = None
    has_lake: bool = False  # it asks the lake how far it is durable, and says so first


class Said(NamedTuple):
    """A line: a write has reached a level under an epoch, or what a shard knows of a producer (then no epoch)."""

    what: str  # mark, applied, flushed, durable
    shard: int
    producer: str
    sequence: int
    epoch: int


class LifeStory(NamedTuple):
    """What was heard of a life, and how it ended."""

    said: list[Said]
    code: int


class Killing(NamedTuple):
    """When to kill: after so many acknowledgements or so long, whichever comes first."""

    acknowledgements: int
    seconds: float
    is_from_birth: bool = False  # the seconds: else from its first word, which comes when it has recovered


def entities_of(shards: int) -> dict[int, list[str]]:
    """Shard → some entities that belong there."""
    names = [f"item-{number}" for number in range(32)]
    owners = shard_of_slot(shards)[slots_of(pa.array(["shop"] * len(names)), pa.array(names))]
    return {
        shard: [name for name, owner in zip(names, owners, strict=True) if owner == shard] for shard in range(shards)
    }


def deltas_of(stream: Stream, sequence: int, entities: list[str]) -> list[dict[str, Any]]:
    """The write of that number, always the same."""
    shard, producer = stream
    deltas = [
        signal(
            f"{producer}-{shard}-{sequence}-{place}",
            at=TEN_O_CLOCK + sequence,
            entity=entities[(sequence + place) % len(entities)],
        )
        for place in range(DELTAS_PER_WRITE)
    ]
    if is_with_copy(sequence):
        deltas[0] = deltas_of(stream, sequence - 1, entities)[0]
    return deltas


def is_with_copy(sequence: int) -> bool:
    """Whether the first delta of that write was in the one before."""
    return sequence % COPY_EVERY == 0


# The life.


def say(*words: object) -> None:
    """One line in one call, so that it is heard whole or not at all."""
    try:
        os.write(1, " ".join(map(str, words)).encode() + b"\n")
    except BrokenPipeError:  # nobody listens any more
        os._exit(1)


class Life:
    """All producers of one process."""

    def __init__(self, orders: Orders, platform: Platform) -> None:
        self._orders, self._platform = orders, platform
        self._entities = entities_of(len(platform.shards))
        self._instances: dict[Stream, int] = {}
        for shard in platform.shards:
            for producer in PRODUCERS:
                self._instances[shard, producer], mark = platform.shards[shard].open_producer(producer)
                say("mark", shard, producer, mark, 0)
        if orders.has_lake:
            self._ask_lake()

    def _ask_lake(self) -> None:
        """Which writes are durable, of those that were acknowledged last."""
        for shard, producer in self._instances:
            if sequence := self._orders.acknowledged[producer][shard]:
                with suppress(WaitTimeoutError):
                    receipt = self._submit((shard, producer), sequence).wait(Level.DURABLE, timeout=0)
                    say("durable", shard, producer, sequence, receipt.epoch)

    def live(self) -> None:
        """Return when everything that was ordered is flushed."""
        threads = [threading.Thread(target=ending_all, args=(self._send, name)) for name in THREADED]
        for thread in threads:
            thread.start()
        asyncio.run(self._send_asynchronously())
        for thread in threads:
            thread.join()

    def _send(self, producer: str) -> None:
        for shard, sequences in self._rounds(producer):
            handles = [self._submit((shard, producer), sequence) for sequence in sequences]
            for handle in handles:
                say("applied", shard, producer, handle.sequence, handle.epoch)
            for handle in handles:
                say("flushed", shard, producer, handle.sequence, handle.wait(Level.FLUSHED).epoch)

    async def _send_asynchronously(self) -> None:
        async def send(producer: str) -> None:
            for shard, sequences in self._rounds(producer):
                handles = [self._submit((shard, producer), sequence) for sequence in sequences]
                for handle in handles:
                    await wait_flushed(handle)
                    say("flushed", shard, producer, handle.sequence, handle.epoch)

        await asyncio.gather(*map(send, ASYNCHRONOUS))

    def _rounds(self, producer: str) -> Iterator[tuple[int, list[int]]]:
        """What to send at a time: the next few of one shard, and sometimes an old one once more."""
        random = Random(f"{self._orders.seed} {producer}")
        following = {shard: self._orders.acknowledged[producer][shard] + 1 for shard in self._platform.shards}
        ends = {shard: first + (self._orders.writes or sys.maxsize) for shard, first in following.items()}
        while open_shards := [shard for shard in following if following[shard] < ends[shard]]:
            shard = random.choice(open_shards)
            first = following[shard]
            following[shard] = min(first + random.randint(1, 8), ends[shard])
            old = [random.randint(1, first - 1)] if first > 1 and random.random() < 0.1 else []
            yield shard, [*old, *range(first, following[shard])]

    def _submit(self, stream: Stream, sequence: int) -> WriteHandle:
        """Every other write in columns."""
        shard, producer = stream
        deltas: Any = deltas_of(stream, sequence, self._entities[shard])
        if sequence % 2:
            rows = [{**delta, "signal": {**delta["signal"], "weight_millionths": 0}} for delta in deltas]
            deltas = pa.Table.from_pylist(rows, SENT_SCHEMA)
        ((number, part),) = self._platform.split(deltas).items()
        return self._platform.shards[number].write(producer, self._instances[stream], sequence, part)


def ending_all(call: Callable[[str], None], argument: str) -> None:
    """An error in any thread is the end of the process."""
    try:
        call(argument)
    except BaseException:  # noqa: BLE001 - whatever it is, the test must see it
        traceback.print_exc()
        os._exit(1)


def live(line: str) -> None:
    """One whole life."""
    signals.alarm(LIFE_LIMIT_S)
    orders = msgspec.json.decode(line, type=Orders)
    if orders.failpoint:
        os.environ["TIDEMARK_FAILPOINT"] = orders.failpoint
    with Platform.open(Home(Path(orders.home)), durable_epochs=None if orders.has_lake else dict) as platform:
        Life(orders, platform).live()
    os._exit(0)


def serve() -> None:
    """The nursery's own life: a line of orders in, one life after the other out."""
    for name in LOADED_LATE:
        import_module(name)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            ending_all(live, line)
        say("born", pid)
        say("over", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


# Whoever gives the orders.


class Nursery:
    """Starts lives, listens to them and kills them."""

    def __enter__(self) -> Self:
        environment = {name: value for name, value in os.environ.items() if name != "TIDEMARK_FAILPOINT"}
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.support.mortal import serve; serve()"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def live(self, orders: Orders, killing: Killing | None = None) -> LifeStory:
        """One life, from its beginning to its end, which may be a kill."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(orders) + b"\n")
        self._process.stdin.flush()
        pid, flushed, said = 0, 0, list[Said]()
        kill_at = time.monotonic() + (killing.seconds if killing and killing.is_from_birth else LIFE_LIMIT_S)
        for what, *words in self._lines():
            if what == "over":
                return LifeStory(said, int(words[0]))
            if what == "born":
                pid = int(words[0])
            elif what != "late":
                if not said and killing:
                    kill_at = min(kill_at, time.monotonic() + killing.seconds)
                shard, producer, sequence, epoch = words
                said.append(Said(what, int(shard), producer, int(sequence), int(epoch)))
                flushed += what == "flushed"
            is_time = time.monotonic() >= kill_at or (killing is not None and flushed >= killing.acknowledgements)
            if pid and is_time:
                with suppress(ProcessLookupError):  # it has come to its own end
                    os.kill(pid, signals.SIGKILL)
                pid = 0  # once
        raise AssertionError("the nursery is gone")

    def _lines(self) -> Iterator[list[str]]:
        """What is said, in words; `late` where nothing was for a moment."""
        assert self._process.stdout is not None
        fd, rest = self._process.stdout.fileno(), b""
        while True:
            if not select.select([fd], [], [], LOOK_S)[0]:
                yield ["late"]
                continue
            heard = os.read(fd, 1 << 16)
            if not heard:
                return
            *lines, rest = (rest + heard).split(b"\n")
            yield from (line.decode().split(" ") for line in lines)
