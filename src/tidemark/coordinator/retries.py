"""Whether a retry is the same write (Q2).

Belongs here: the comparison, made by the thread that sends it again and without the shard's lock. A write under a used
number is answered as a retry only if it is the same write; a different one would be lost behind that answer.
"""

from tidemark.coordinator.handles import Sending
from tidemark.door.decoded import Deltas
from tidemark.model.shard_errors import NumberReuseError
from tidemark.shard_state.producers import EMPTY_DIGEST
from tidemark.verdicts.digests import digest_of


def same_write(producer: str, sending: Sending, deltas: Deltas) -> Sending:
    """Return the answer to a write; raise if its number was used for another one."""
    if sending.is_retry and not _is_same(sending, deltas):
        raise NumberReuseError(producer, sending.sequence, deltas)
    return sending


def _is_same(sending: Sending, deltas: Deltas) -> bool:
    if sending.ticket is None:
        return sending.digest is None or sending.digest == _digest(deltas)
    first = sending.ticket.write.deltas  # it has no digest before it is flushed
    return first is deltas or _digest(first) == _digest(deltas)


def _digest(deltas: Deltas) -> int:
    return digest_of(deltas) if len(deltas) else EMPTY_DIGEST
