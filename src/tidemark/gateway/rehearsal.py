"""A rehearsal: a write of each form through a platform that is thrown away.

Belongs here: that. What a write needs is imported, and its machine code loaded, when it is first used, and that takes
a fifth of a second: the first client of a server should not wait for it.
"""

import tempfile
from pathlib import Path

import pyarrow as pa

from tidemark.coordinator.platform import Platform
from tidemark.door.foreign_columns import read_columns
from tidemark.event_time.clock import system_clock
from tidemark.storage.home import Home
from tidemark.wire.limits import LIMITS

_LINE = (
    b'{"namespace":"rehearsal","kind":"signal","delta_id":"%d","event_ts":%d,"signal":{"entity_id":"e","signal":"s"}}'
)


def rehearse() -> None:
    """Take a few writes, and forget them."""
    now_us = system_clock()
    with tempfile.TemporaryDirectory(prefix="tidemark-rehearsal-") as folder:
        home = Home(Path(folder) / "home").create("")
        with Platform.open(home, durable_epochs=dict, rules={}) as platform:
            producer = platform.producer("rehearsal")
            lines = [_LINE % (number, now_us) for number in range(3)]
            # With a duplicate and something that is no delta: their ways are longer.
            producer.write([*lines, lines[0], b"{"]).wait()
            producer.write(read_columns(_columns(now_us), LIMITS)).wait()


def _columns(now_us: int) -> bytes:
    signal = {"entity_id": "e", "signal": "s", "count": 1, "weight": 0.5}
    columns = {
        "namespace": ["rehearsal"],
        "kind": ["signal"],
        "delta_id": ["columns"],
        "event_ts": pa.array([now_us], pa.timestamp("us", "UTC")),
        "signal": [signal],
    }
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())
