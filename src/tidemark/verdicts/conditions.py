"""Conditions on columns of texts that the checks of the envelope and of payloads share: names, ids, words of a list.

Belongs here: which rows meet one, for all rows at once. Reasons and messages are in `checks.py` and
`payload_checks.py`.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.columns import NO_ROWS, Rows, odd_ids, odd_names
from tidemark.model.settings import NAME_PATTERN

Mask = npt.NDArray[np.bool_]

ID_LIMIT = 256  # bytes; long enough for any URL that is really used as an id
CONTROL_CHARACTERS = r"[\x00-\x1f\x7f]"


def no_names(texts: pa.Array, words: frozenset[str] | None = None, *, may_be_missing: bool = False) -> Rows:
    """Rows without a plain name; only doubtful ones are looked at one by one."""
    if words and all(map(_is_name, words)):
        return NO_ROWS
    odd = odd_names(texts)
    if not len(odd):
        return NO_ROWS
    looked_at = texts.take(pa.array(odd))
    is_name = _are_names(looked_at)
    return odd[~is_name & np.asarray(looked_at.is_valid())] if may_be_missing else odd[~is_name]


def wrong_ids(texts: pa.Array) -> tuple[Rows, Rows]:
    """Rows with an empty id, and rows with a bad one; only doubtful ones are looked at one by one."""
    odd = odd_ids(texts, ID_LIMIT)
    if not len(odd):
        return NO_ROWS, NO_ROWS
    looked_at = texts.take(pa.array(odd))
    return odd[is_empty(looked_at)], odd[is_bad_id(looked_at)]


@lru_cache(1_024)
def _is_name(word: str) -> bool:
    return bool(_are_names(pa.array([word], pa.string()))[0])


def _are_names(texts: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(pc.match_substring_regex(texts, NAME_PATTERN), False))


def one_of(texts: pa.Array, allowed: Sequence[str]) -> Mask:
    """Rows with one of these texts."""
    return np.asarray(pc.is_in(texts, pa.array([str(value) for value in allowed])))


def is_empty(texts: pa.Array) -> Mask:
    """Rows with only white space, or with no text at all."""
    return np.asarray(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True))


def is_bad_id(texts: pa.Array) -> Mask:
    """Rows with a text that is too long for an id, or has control characters."""
    too_long = pc.greater(pc.binary_length(texts), ID_LIMIT)
    return np.asarray(pc.fill_null(pc.or_(too_long, pc.match_substring_regex(texts, CONTROL_CHARACTERS)), False))


def none_of(texts: pa.Array, allowed: tuple[str, ...], words: frozenset[str] | None) -> Rows:
    """Rows with a word that is not allowed."""
    return NO_ROWS if words and words.issubset(allowed) else np.flatnonzero(~one_of(texts, allowed))


@lru_cache
def listed(values: tuple[str, ...]) -> str:
    """The allowed words, for a sentence."""
    return "one of " + ", ".join(str(value) for value in values)
