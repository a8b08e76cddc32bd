"""The digest of a write: one number over its decoded rows, which tells a retry from another write (Q2).

Belongs here: what goes into it. It does not depend on the form: objects, JSON and columns of the same deltas have the
same digest. Nor does it depend on time: verdicts that follow from the time of arrival are left out.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.arrays.columns import Numbers, numbers_of
from tidemark.arrays.compiled import compiled
from tidemark.arrays.hashing import Hashes, hash_array, hash_of_texts, hash_rows, mix
from tidemark.door.decode import decode, original_bytes
from tidemark.door.decode_columns import DEFAULTS
from tidemark.door.decoded import DecodedBatch, Deltas
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import HASHES
from tidemark.verdicts.delta_hashes import delta_hashes

# Beside identity and payload; a kind follows from its payload.
_ENVELOPE = ("priority", "source", "origin")
# Of a write's deltas that could not be decoded, so many count with all of their bytes.
_SHOWN_WHOLE = 1_000
_31 = np.uint64(31)
_TURN = np.uint64(0x9E3779B97F4A7C15)


def digest_of(deltas: Deltas) -> int:
    """The digest of one write."""
    decoded = decode(deltas, SeriesNames())
    namespaces = decoded.words.get("namespace", ())
    hashes = delta_hashes(decoded.columns, next(iter(namespaces)) if len(namespaces) == 1 else None)
    return write_digests(decoded, sorted(decoded.refusals), hashes, np.array([decoded.rows]))[0]


def write_digests(
    decoded: DecodedBatch, malformed: Sequence[int], hashes: Mapping[str, pa.Array], sizes: Numbers
) -> list[int]:
    """A digest for each write of a group. `malformed` are the rows that could not be decoded, in order."""
    identities, contents = (numbers_of(hashes[name]).view(np.uint64) for name in HASHES)
    if malformed:
        identities, contents = identities.copy(), contents.copy()
        identities[malformed] = 0
        contents[malformed] = _hashes_of_malformed(decoded, malformed, sizes)
    digests = np.empty(len(sizes), dtype=np.uint64)
    _fold(digests, np.cumsum(sizes), identities, contents, _envelopes(decoded, malformed))
    found: list[int] = digests.tolist()
    return found


def _envelopes(decoded: DecodedBatch, malformed: Sequence[int]) -> Hashes:
    """One hash for each row, or one for all."""
    columns = [_constant(decoded, name) for name in _ENVELOPE]
    if all(isinstance(column, str) or column.null_count == decoded.rows for column in columns):
        texts = tuple(column if isinstance(column, str) else None for column in columns)
        hashes = np.full(decoded.rows if malformed else 1, hash_of_texts(texts), dtype=np.uint64)
    else:
        hashes = hash_rows(columns, decoded.rows)
    hashes[malformed] = 0  # the parts of these that can be shown depend on their form
    return hashes


def _constant(decoded: DecodedBatch, name: str) -> pa.Array | str:
    words = decoded.words.get(name, ())
    return next(iter(words)) if len(words) == 1 else decoded.columns[name]


def _hashes_of_malformed(decoded: DecodedBatch, rows: Sequence[int], sizes: Numbers) -> Hashes:
    writes = np.searchsorted(np.cumsum(sizes), rows, side="right").tolist()
    seen: Counter[int] = Counter()
    whole = []
    for row, write in zip(rows, writes, strict=True):
        seen[write] += 1
        if seen[write] <= _SHOWN_WHOLE:
            whole.append(row)
    texts = dict(zip(whole, map(_canonical, decoded.originals(whole, False)), strict=True))
    return hash_array(pa.array([texts.get(row, b"") for row in rows], pa.binary()))


def _canonical(sent: Any) -> bytes:
    """An invalid delta as JSON, in which the same object is always the same text."""
    try:
        found = json.loads(sent) if isinstance(sent, bytes | str) else sent
        if isinstance(found, Mapping):
            found = {name: value for name, value in found.items() if value is not None and DEFAULTS.get(name) != value}
        return json.dumps(found, sort_keys=True, default=str).encode("utf-8", "backslashreplace")
    except Exception:  # noqa: BLE001 - a caller's object may raise anything
        return original_bytes(sent)


@compiled
def _fold(digests: Hashes, ends: Numbers, identities: Hashes, contents: Hashes, envelopes: Hashes) -> None:
    row = 0
    for write in range(len(digests)):
        total = np.uint64(0)
        place = np.uint64(0)
        while row < ends[write]:
            envelope = envelopes[row] if len(envelopes) > 1 else envelopes[0]
            place += _TURN  # the order of deltas counts
            total += mix(mix(identities[row] * _31 + contents[row]) + envelope * _31 + place)
            row += 1
        digests[write] = mix(total) | np.uint64(1)  # never 0, which means "no digest"
