"""Errors in a delta by itself (D4, D6, D7, D9), found for a whole batch of columns at once.

Belongs here: one condition per reason for the envelope, in order: the first that a delta meets is its reason. Those
about a payload are in `payload_checks.py`, those about the time of an event in `time_checks.py`. Does not belong here:
decisions that need other deltas (duplicates, missing parents).
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidemark.arrays.columns import NO_WORDS, Numbers, Words
from tidemark.door.decoded import Finding, Refusal
from tidemark.model.deltas import Priority, Reason, Source
from tidemark.model.settings import Settings
from tidemark.verdicts.conditions import ID_LIMIT, Mask, listed, no_names, none_of, wrong_ids
from tidemark.verdicts.payload_checks import PAYLOAD_CHECKS, Beside
from tidemark.verdicts.time_checks import find_times

_NAME_RULE = "a lower-case letter, then up to 62 of a-z, 0-9 and _"
_PRIORITIES, _SOURCES = tuple(map(str, Priority)), tuple(map(str, Source))


def check(
    columns: Mapping[str, pa.Array],
    received_us: Numbers,
    settings: Settings,
    skip: Mask,
    words: Words = NO_WORDS,
    *,
    cut_us: int | None = None,
) -> dict[int, Refusal]:
    """Row → why it is refused. Rows in `skip` were refused before and are not checked.

    `words` are all texts of some columns that have few: if these are valid, so is the column. `cut_us` is the cut of
    vectors that is in force.
    """
    findings = [*_envelope(columns, words), *find_times(columns, received_us, settings, cut_us)]
    for kind, find in PAYLOAD_CHECKS.items():
        payloads = columns[kind]
        if payloads.null_count == len(payloads):
            continue
        if not payloads.null_count and not skip.any():
            findings += find(payloads, Beside(columns, settings, words))
            continue
        rows = np.flatnonzero(np.asarray(payloads.is_valid()) & ~skip)
        if len(rows):
            chosen = pa.array(rows)
            part = {name: columns[name].take(chosen) for name in ("namespace", "delta_id")}
            found = find(payloads.take(chosen), Beside(part, settings, words))
            findings += [finding._replace(wrong=rows[finding.wrong]) for finding in found]
    refusals: dict[int, Refusal] = {}
    for finding in findings:
        for row in finding.wrong.tolist():
            if row not in refusals and not skip[row]:
                shown = f" It is {_shorten(columns[finding.column][row])}." if finding.column else ""
                refusals[row] = Refusal(finding.reason, finding.detail + shown)
    return refusals


def _envelope(columns: Mapping[str, pa.Array], words: Words) -> list[Finding]:
    empty_ids, bad_ids = wrong_ids(columns["delta_id"])
    empty_keys, bad_keys = wrong_ids(columns["key"])
    return [
        Finding(
            no_names(columns["namespace"], words.get("namespace")),
            Reason.BAD_NAME,
            f"namespace must be {_NAME_RULE}.",
            "namespace",
        ),
        Finding(empty_ids, Reason.EMPTY_ID, "delta_id is empty."),
        Finding(bad_ids, Reason.BAD_ID, f"delta_id has control characters or more than {ID_LIMIT} bytes."),
        Finding(empty_keys, Reason.EMPTY_ID, "The id of what the delta is about is empty."),
        Finding(bad_keys, Reason.BAD_ID, f"The id has control characters or more than {ID_LIMIT} bytes.", "key"),
        Finding(
            none_of(columns["priority"], _PRIORITIES, words.get("priority")),
            Reason.WRONG_TYPE,
            f"priority must be {listed(_PRIORITIES)}.",
            "priority",
        ),
        Finding(
            none_of(columns["source"], _SOURCES, words.get("source")),
            Reason.WRONG_TYPE,
            f"source must be {listed(_SOURCES)}.",
            "source",
        ),
        Finding(
            no_names(columns["origin"], words.get("origin"), may_be_missing=True),
            Reason.BAD_NAME,
            f"origin must be {_NAME_RULE}.",
            "origin",
        ),
    ]


def _shorten(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 60 else text[:57] + "…"
