"""The files of a ledger: immutable runs of key-value pairs, sorted by key.

Belongs here: the format of a run, how one is written, and how it is read block by block through a bounded cache.
`ledger.py` decides which runs there are and which of them wins.

A run is a row of blocks with an index after them. The index has the first key, the end and the checksum of every
block, and a Bloom filter of all keys. The descriptor of the run, which the owner of the ledger stores, has the
checksum of the index. So every byte is covered by a checksum that is stored elsewhere.
"""

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeVar

import google_crc32c
import msgspec
import numpy as np
from msgspec import Struct

from tidemark.log.run_info import RunInfo
from tidemark.model.shard_errors import LogDamageError
from tidemark.storage.disk import Disk

SUFFIX = ".run"
FORMAT_VERSION = 1
# Ten bits and seven probes per key: one lookup in a hundred reads a block for nothing.
_BITS_PER_KEY = 10
_PROBES = 7
# Memory that Python needs for one parsed pair, beside its bytes.
_PAIR_OVERHEAD = 150

Keys = list[str]
Values = list[bytes]
T = TypeVar("T")


class Sizes(NamedTuple):
    """Sizes in bytes; tests make them small."""

    block: int = 16 << 10  # read whole for one key, so small; a few producers' states fit
    run: int = 4 << 20  # one step of a merge writes one run, so this bounds how long a step takes
    cache: int = 8 << 20  # of parsed blocks and indexes, per ledger
    read: int = 256 << 10  # read at once from each input of a merge


class Index(Struct, frozen=True, array_like=True):
    """The index after the blocks."""

    version: int
    firsts: list[str]  # first key of each block
    ends: list[int]  # where each block ends; the first begins at 0
    crcs: list[int]  # of each block
    filter: bytes

    def begin(self, block: int) -> int:
        """Where a block begins."""
        return self.ends[block - 1] if block else 0

    def block_of(self, key: str) -> int:
        """The only block that may contain `key`."""
        return max(bisect_right(self.firsts, key) - 1, 0)


class Block(NamedTuple):
    """A parsed block: keys in order, and the value of each."""

    keys: Keys
    values: Values


_index_decoder = msgspec.msgpack.Decoder(Index)
_block_decoder = msgspec.msgpack.Decoder(tuple[Keys, Values])
_encode = msgspec.msgpack.Encoder().encode


class RunBuilder:
    """Collects sorted pairs and turns them into the bytes of one run."""

    def __init__(self, block_bytes: int) -> None:
        self.size = 0  # about as many bytes as the run will have
        self._block_bytes = block_bytes
        self._blocks: list[Block] = []
        self._room = 0  # bytes that still fit into the last block

    def add(self, key: str, value: bytes) -> None:
        """Add one pair; its key must be greater than all before."""
        if self._room <= 0:
            self._blocks.append(Block([], []))
            self._room = self._block_bytes
        block = self._blocks[-1]
        block.keys.append(key)
        block.values.append(value)
        # A key may take four bytes a letter, but hardly ever does; this decides only where a block ends.
        size = len(key) + len(value) + 8
        self._room -= size
        self.size += size

    def finish(self, file: str, tier: int) -> tuple[bytes, RunInfo]:
        """The bytes of the run, and its descriptor."""
        keys = [key for block in self._blocks for key in block.keys]
        encoded = [_encode(block) for block in self._blocks]
        index = _encode(
            Index(
                version=FORMAT_VERSION,
                firsts=[block.keys[0] for block in self._blocks],
                ends=np.cumsum([len(data) for data in encoded]).tolist(),
                crcs=[google_crc32c.value(data) for data in encoded],
                filter=_filter_of(keys),
            )
        )
        data = b"".join([*encoded, index])
        index_at = len(data) - len(index)
        crc = google_crc32c.value(index)
        return data, RunInfo(file, tier, keys[0], keys[-1], len(keys), len(data), index_at, crc)


class Runs:
    """Reads and writes the runs in one directory. Any thread may read; no lock is taken while the disk is read."""

    def __init__(self, disk: Disk, directory: Path, sizes: Sizes) -> None:
        self.directory, self.sizes = directory, sizes
        self._disk = disk
        self._cache = _Cache(sizes.cache)

    def store(self, builder: RunBuilder, file: str, tier: int) -> RunInfo:
        """Write a run. Its data is on the disk afterwards; its name is not until the directory is synced."""
        data, info = builder.finish(file, tier)
        fd = self._disk.create(self.directory / file, len(data))
        try:
            self._disk.pwrite(fd, data, 0)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        return info

    def find(self, info: RunInfo, key: str) -> bytes | None:
        """The value of `key` in this run."""
        index = self.index(info)
        if not _may_hold(index.filter, key):
            return None
        number = index.block_of(key)
        block = self._cache.get((info.file, number), lambda: self.blocks(info, index, number, number + 1)[0], _cost)
        at = bisect_left(block.keys, key)
        return block.values[at] if at < len(block.keys) and block.keys[at] == key else None

    def index(self, info: RunInfo) -> Index:
        """The index of a run; also verifies that the file has the right size."""
        return self._cache.get((info.file, -1), lambda: self._read_index(info), lambda _: info.bytes - info.index_at)

    def blocks(self, info: RunInfo, index: Index, start: int, stop: int) -> list[Block]:
        """These blocks, read with one call and past the cache."""
        offset = index.begin(start)
        data = self._read(info, offset, index.ends[stop - 1])
        return [
            self._parse(info, number, data[index.begin(number) - offset : index.ends[number] - offset], index)
            for number in range(start, stop)
        ]

    def _parse(self, info: RunInfo, number: int, data: bytes, index: Index) -> Block:
        if google_crc32c.value(data) != index.crcs[number]:
            raise self.damage(info, f"block {number} has a wrong checksum")
        return Block(*_block_decoder.decode(data))

    def _read_index(self, info: RunInfo) -> Index:
        data = self._read(info, info.index_at, info.bytes)
        if google_crc32c.value(data) != info.crc32c:
            raise self.damage(info, "its index has a wrong checksum")
        try:
            return _index_decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise self.damage(info, f"its index cannot be read ({error})") from error

    def _read(self, info: RunInfo, begin: int, end: int) -> bytes:
        # Opened for every read, because two threads cannot share the position of one open file.
        with self._disk.open(self.directory / info.file) as file:
            if end == info.bytes and file.seek(0, 2) != end:
                raise self.damage(info, f"it should have {info.bytes} bytes")
            file.seek(begin)
            data = file.read(end - begin)
        if len(data) != end - begin:
            raise self.damage(info, f"it ends before byte {end}")
        return data

    def damage(self, info: RunInfo, why: str) -> LogDamageError:
        """The error for a run that differs from what was written."""
        return LogDamageError(
            f"{self.directory / info.file} is damaged: {why}. Restore it from a backup together with the files of its "
            "shard; nothing was changed."
        )


class Cursor:
    """Walks through the runs of one tier, which do not overlap, a few blocks at a time."""

    def __init__(self, runs: Runs, infos: Sequence[RunInfo]) -> None:
        self._runs = runs
        self._infos = list(infos)  # the first is being read
        self._blocks = self._walk()
        self._block = Block([], [])
        self._at = 0
        self._advance()

    @property
    def last(self) -> str | None:
        """Last key of the current block; None at the end."""
        return self._block.keys[-1] if self._block.keys else None

    def take(self, bound: str) -> Iterator[tuple[str, bytes]]:
        """The pairs up to and including `bound`, which is no greater than `last`."""
        keys, values, begin = *self._block, self._at
        self._at = bisect_right(keys, bound, begin)
        taken = zip(keys[begin : self._at], values[begin : self._at], strict=True)
        if self._at == len(keys):
            self._advance()
        return taken

    def left(self) -> list[RunInfo]:
        """The pairs that are not taken yet, as descriptors."""
        if not self._block.keys:
            return []
        return [msgspec.structs.replace(self._infos[0], first=self._block.keys[self._at]), *self._infos[1:]]

    def _advance(self) -> None:
        self._block, self._at = next(self._blocks, (Block([], []), 0))

    def _walk(self) -> Iterator[tuple[Block, int]]:
        """Each block, and where in it to begin."""
        while self._infos:
            info = self._infos[0]
            index = self._runs.index(info)
            number = index.block_of(info.first)
            while number < len(index.ends):
                stop = bisect_right(index.ends, index.begin(number) + self._runs.sizes.read, number + 1)
                for block in self._runs.blocks(info, index, number, stop):
                    at = bisect_left(block.keys, info.first)
                    if at < len(block.keys):
                        yield block, at
                number = stop
            self._infos.pop(0)


class _Cache:
    """The most recently used blocks and indexes, up to a number of bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._used = capacity, 0
        self._kept: OrderedDict[tuple[str, int], tuple[object, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: tuple[str, int], read: Callable[[], T], cost_of: Callable[[T], int]) -> T:
        """The cached value of this name, read if it is not cached. If two threads both read it, they read the same."""
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found[0]  # type: ignore[return-value] # one name is always used for the same kind
        value = read()
        cost = cost_of(value)
        with self._lock:
            if name not in self._kept and cost <= self._capacity:
                self._kept[name] = (value, cost)
                self._used += cost
                while self._used > self._capacity:
                    self._used -= self._kept.popitem(last=False)[1][1]
        return value


def _cost(block: Block) -> int:
    return sum(len(key) + len(value) + _PAIR_OVERHEAD for key, value in zip(*block, strict=True))


def _digest(key: str) -> bytes:
    # Python compares keys by code point, so a key may be any text, even one that UTF-8 cannot encode.
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _filter_of(keys: Sequence[str]) -> bytes:
    """A Bloom filter: the bits at `start + n * step` of every key."""
    size = (len(keys) * _BITS_PER_KEY + 7) // 8 * 8
    digests = np.frombuffer(b"".join(map(_digest, keys)), dtype="<u4").reshape(-1, 2).astype(np.uint64)
    bits = np.zeros(size, dtype=np.uint8)
    for probe in range(_PROBES):
        bits[(digests[:, 0] + np.uint64(probe) * digests[:, 1]) % np.uint64(size)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _may_hold(bits: bytes, key: str) -> bool:
    digest = _digest(key)
    start, step = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
    for probe in range(_PROBES):
        at = (start + probe * step) % (len(bits) * 8)
        if not bits[at >> 3] >> (at & 7) & 1:
            return False
    return True
