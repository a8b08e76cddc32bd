"""How often vectors are read, as recorded by readers: the `adaptive` strategy chooses by it (K2).

Belongs here: the files and their lines. They are a hint: a line that cannot be read, or a file that is missing, counts
as no read, and no state depends on it.

A file is `reads/<day>.jsonl` in the home, named after the UTC day on which it was written. A line is one reader's count
for one vector since its last line: `{"namespace": …, "vector_id": …, "reads": 12, "at_us": …}`.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec import Struct

from tidemark.model.timegrid import DAY_US, HOUR_US, from_us
from tidemark.storage.privacy import make_directory, make_private

# Rates are those of the last day: a vector that is read by day and not by night still counts.
RATE_SPAN_US = DAY_US

RATES = pa.schema([("namespace", pa.string()), ("vector_id", pa.string()), ("reads_per_hour", pa.float64())])


class Reads(Struct, frozen=True):
    """How often one reader read one vector."""

    namespace: str
    vector_id: str
    reads: int
    at_us: int


def reads_file(root: Path, now_us: int) -> Path:
    """The file to which reads of now are appended."""
    return root / "reads" / f"{from_us(now_us):%Y-%m-%d}.jsonl"


def read_rates(root: Path, now_us: int) -> pa.Table:
    """Reads per hour of every vector that was read within the last day."""
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted({reads_file(root, now_us - RATE_SPAN_US), reads_file(root, now_us)}):
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                each = msgspec.json.decode(line, type=Reads)
            except msgspec.MsgspecError:
                continue
            if now_us - RATE_SPAN_US <= each.at_us <= now_us:
                found[each.namespace, each.vector_id] += each.reads
    hours = RATE_SPAN_US / HOUR_US
    rows = [
        {"namespace": namespace, "vector_id": vector_id, "reads_per_hour": reads / hours}
        for (namespace, vector_id), reads in sorted(found.items())
    ]
    return pa.Table.from_pylist(rows, schema=RATES)


def _forget_before(root: Path, time_us: int) -> None:
    """Remove days that are no longer needed; once a day, when the next one begins."""
    kept_from = reads_file(root, time_us)
    for path in kept_from.parent.glob("????-??-??.jsonl"):
        if path.name < kept_from.name:
            path.unlink(missing_ok=True)


def append_reads(root: Path, reads: Mapping[tuple[str, str], int], now_us: int) -> None:
    """Append the counts, in one write; it does no harm if that is not possible."""
    lines = [msgspec.json.encode(Reads(*vector, count, now_us)) + b"\n" for vector, count in reads.items() if count]
    path = reads_file(root, now_us)
    with suppress(OSError):
        make_directory(path.parent)
        if not path.exists():
            _forget_before(root, now_us - RATE_SPAN_US)
        with open(path, "ab", buffering=0, opener=make_private) as file:
            file.write(b"".join(lines))
