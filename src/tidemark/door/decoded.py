"""The result of decoding: deltas in columns, and why some of them are invalid.

Belongs here: the types that both doors (rows and columns) fill in, and the naming of a series, which either door may
have to refuse.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidemark.arrays.columns import Rows, nulls
from tidemark.model.deltas import Delta, Reason
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import DETAIL_LIMIT

Sent = Delta | Mapping[str, Any] | bytes | str
Deltas: TypeAlias = Sequence[Sent] | pa.RecordBatch  # the contents of one write, in one shard


# Among the words of a batch: the names of all its signals. A field of a payload, not a column.
SIGNAL_NAMES = "signal.signal"
# Columns in which most groups have only one text, or a few.
FEW_WORDS = ("namespace", "kind", "priority", "source")


class Refusal(NamedTuple):
    """Why a delta was refused: a word and a sentence."""

    reason: Reason
    detail: str


class Finding(NamedTuple):
    """Rows with the same error."""

    wrong: Rows
    reason: Reason
    detail: str
    column: str | None = None  # whose value is shown


class RefusedError(Exception):
    """Raised while a delta is decoded, and turned into a row; `envelope` has the parts that can be shown."""

    def __init__(self, reason: Reason, detail: str, envelope: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)
        self.envelope = envelope or {}


Originals: TypeAlias = Callable[[Sequence[int], bool], Iterable[Sent]]


class DecodedBatch(NamedTuple):
    """Columns of `SENT_FIELDS` plus `key`, with the refusals and the original bytes beside them."""

    columns: dict[str, pa.Array]
    refusals: dict[int, Refusal]  # row → reason; all other rows were well-formed
    original: Callable[[int], Sent]  # row → original bytes
    words: dict[str, frozenset[str]]  # every text that occurs in a column, for those that have few and no gaps
    originals: Originals  # the same for many rows; if the caller says so, perhaps only their first bytes

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


def bounded(sentence: str) -> str:
    """A sentence that may quote the delta, cut to `DETAIL_LIMIT` bytes."""
    encoded = sentence.encode("utf-8", "backslashreplace")
    if len(encoded) <= DETAIL_LIMIT:
        return encoded.decode()
    return encoded[: DETAIL_LIMIT - 3].decode(errors="ignore") + "…"


def scattered(values: Mapping[int, object], rows: int, kind: pa.DataType) -> pa.Array:
    """A column with these values at their rows, and null elsewhere."""
    if not values:
        return nulls(rows, kind)
    places = np.full(rows, -1)
    places[list(values)] = np.arange(len(values))
    return pa.array(list(values.values()), kind).take(pa.array(places, mask=places < 0))
