"""What decoding gives: deltas in columns, and why some of them are none.

Belongs here: the types that both ways of decoding (objects and columns) fill in, and the naming of a series, which
either may have to refuse.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from resources.coordinator.columns import Rows
from resources.coordinator.fingerprint import SeriesNames
from resources.coordinator.model import Delta, Reason

Sent = Delta | Mapping[str, Any] | bytes | str
Deltas: TypeAlias = Sequence[Sent] | pa.RecordBatch  # what one write holds, in one shard


# Among the words of a batch: the names of all signals in it. A field of a payload, and no column.
SIGNAL_NAMES = "signal.signal"


class Refusal(NamedTuple):
    """Why a delta was refused, in one word and in a sentence."""

    reason: Reason
    detail: str


class Finding(NamedTuple):
    """Rows in which the same is wrong."""

    wrong: Rows
    reason: Reason
    detail: str
    column: str | None = None  # whose value is shown


class RefusedError(Exception):
    """Raised while a delta is decoded, and turned into a row; `envelope` is what can be shown of it."""

    def __init__(self, reason: Reason, detail: str, envelope: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)
        self.envelope = envelope or {}


class DecodedBatch(NamedTuple):
    """Columns of `SENT_FIELDS` plus `key`, with the refusals and the original bytes beside them."""

    columns: dict[str, pa.Array]
    refusals: dict[int, Refusal]  # row → why; everything else was well-formed
    original: Callable[[int], Sent]  # row → what was sent
    words: dict[str, frozenset[str]]  # every text that occurs in a column, for those that have few and no gaps

    @property
    def rows(self) -> int:
        """Number of deltas."""
        return len(self.columns["key"])


def name_series(labels: list[tuple[str, str]], series: SeriesNames) -> str:
    """The fingerprint of sorted labels, or a refusal if another series has the same."""
    name = series.fingerprint(labels)
    if series.collides(labels, name):
        raise RefusedError(
            Reason.FINGERPRINT_COLLISION,
            f"Another series has the same fingerprint {name}; change a label of one of them.",
        )
    return name
