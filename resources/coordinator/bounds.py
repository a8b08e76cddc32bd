"""How large things may be on the live plane, and how large they are: measured, not taken from the client's word (C8).

Belongs here: the bounds and the measure. What happens at a bound is decided where it is met.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
import pyarrow as pa

from resources.coordinator.decode import Sent, original_bytes

# One write is one unit of the log: large enough for the largest efficient batch, small enough to be read back at once.
WRITE_BYTES = 64 * 1024 * 1024
# Bytes logged with one sync: enough to be efficient, few enough to be quick.
GROUP_BYTES = 16 * 1024 * 1024
# Bytes that may wait for the writer thread; then `write` waits for it.
QUEUE_BYTES = 50 * 1024 * 1024


def measure(deltas: Sequence[Sent] | pa.RecordBatch) -> int:
    """Bytes of a write: of the columns, or of the JSON that was or would be sent."""
    if isinstance(deltas, pa.RecordBatch):
        return int(deltas.nbytes)
    return sum(len(sent) if isinstance(sent, bytes | str) else _encoded_size(sent) for sent in deltas)


def _encoded_size(sent: Sent) -> int:
    try:
        return len(msgspec.json.encode(sent, enc_hook=_as_text))
    except (TypeError, ValueError, RecursionError, OverflowError):
        # What JSON cannot say will be refused as malformed; it counts with what is kept of it.
        try:
            return len(original_bytes(sent))
        except (TypeError, ValueError, RecursionError):
            return 0


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
