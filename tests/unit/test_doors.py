"""The law of the two doors: a delta gets the same verdict and is stored the same, as a row and in columns (C14, Q3).

A write comes as rows (dictionaries, JSON) or in columns (Arrow). Whatever types its columns have, what the log holds of
each row is what the row would have left there: verdict, reason, sentence and every column, read back from the frame. A
null in a column is a field that is not there.

Of a refused delta the log keeps what was sent. Of columns that is the JSON of the row, so it may differ from the bytes
of a row that said the same in other words (a time as text, a default that was left out). Sent as a row, it gets the
same verdict and reason; only what JSON has no word for (bytes, a date, a duration, a decimal) does not.
"""

from collections.abc import Callable
from typing import Any, TypeAlias
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support import doors
from tests.support.doors import HOSTILE, Encoding, Field
from tests.support.two_doors import as_json, assert_same, decide, is_told, texts_of, without_raw
from tidemark.coordinator.slots import slots_of
from tidemark.door import column_door, column_types, decode_rows
from tidemark.door.column_types import Taken
from tidemark.door.decode import decode, keys_of, to_batch
from tidemark.door.decode_values import clear_millionths
from tidemark.door.ownership import own, own_columns
from tidemark.model.deltas import Delta
from tidemark.model.fingerprint import SeriesNames
from tidemark.verdicts.delta_hashes import with_hashes

Write: TypeAlias = tuple[pa.Table | pa.RecordBatch, list[dict[str, Any]]]
TEXTS = {
    "namespace": ["shop", "other", "shop\n", "", "Shop", "é", "x" * 64],
    "delta_id": ["a", "b", "", " ", "a\n", "é" * 128, "é" * 129, "x" * 257],
    "priority": ["normal", "high", "urgent", ""],
    "source": ["local", "import", "elsewhere"],
    "origin": ["web", "east", "Ea st", "east\n"],
    "entity_id": ["e", "f", "", "\x7f"],
    "signal": ["view", "buy", "vi ew", "view\n", ""],
    "vector_id": ["v", "w", ""],
    "parent_id": ["a", "b", "p", "", "x" * 257],
}
OPERATIONS = ["create", "set_dims", "add_dims", "scale", "offset", "delete", "rotate"]
PAYLOADS: dict[str, dict[str, list[Encoding]]] = {
    "signal": {
        "entity_id": doors.text_encodings(st.sampled_from(TEXTS["entity_id"])),
        "signal": doors.text_encodings(st.sampled_from(TEXTS["signal"])),
        "count": doors.whole_encodings(),
        "weight": doors.number_encodings(),
    },
    "sample": {
        "labels": doors.map_encodings(pa.string(), st.sampled_from(["x", "", "é", "a\n", None])),
        "value": doors.number_encodings(),
    },
    "vector": {
        "vector_id": doors.text_encodings(st.sampled_from(TEXTS["vector_id"])),
        "op": doors.text_encodings(st.sampled_from(OPERATIONS)),
        "values": doors.values_encodings(),
        "indices": doors.index_encodings(),
        "factor": doors.number_encodings(),
        "amount": doors.number_encodings(),
        "parent_id": doors.text_encodings(st.sampled_from(TEXTS["parent_id"])),
        "clock": doors.map_encodings(pa.int64(), st.sampled_from([0, 1, -1, 2**63 - 1]) | st.none()),
        "metadata": doors.map_encodings(pa.string(), st.sampled_from(["x", ""]) | st.none()),
    },
}
ENVELOPE = {
    **{name: doors.text_encodings(st.sampled_from(TEXTS[name])) for name in ("namespace", "delta_id")},
    "kind": doors.text_encodings(st.sampled_from([*PAYLOADS, "metric", "signal\n"])),
    "event_ts": doors.time_encodings(),
    **{name: doors.text_encodings(st.sampled_from(TEXTS[name])) for name in ("priority", "source", "origin")},
}
KINDS = {kind: doors.text_encodings(st.just(kind)) for kind in PAYLOADS}
NEEDED = {"signal": ["entity_id", "signal"], "sample": ["labels", "value"], "vector": ["vector_id", "op"]}


@st.composite
def fields(draw: st.DrawFn, encodings: list[Encoding], rows: int, *, is_needed: bool, is_hostile: bool) -> Field:
    """A column of one of these types, or of one that means nothing there."""
    encoding = draw(st.sampled_from([*encodings, *HOSTILE] if is_hostile else encodings))
    values = encoding.values if is_needed and not is_hostile else encoding.values | st.none()
    found = draw(st.lists(values, min_size=rows, max_size=rows))
    array = encoding.make([None, *found, None] if encoding.name != "runs" else ["x", *found, "x"])
    return Field(array.slice(1, rows), [None if value is None else encoding.row(value) for value in found])


@st.composite
def payloads(draw: st.DrawFn, kind: str, rows: int, hostile: frozenset[str]) -> Field:
    names = [name for name in PAYLOADS[kind] if name in NEEDED[kind] or name in hostile or draw(st.booleans())]
    found = {
        name: draw(fields(PAYLOADS[kind][name], rows, is_needed=name in NEEDED[kind], is_hostile=name in hostile))
        for name in names
    }
    absent = draw(st.sampled_from([[False] * rows, [True] + [False] * (rows - 1)]))
    array = pa.StructArray.from_arrays(
        [field.array for field in found.values()], list(found), mask=pa.array(absent) if any(absent) else None
    )
    return Field(
        array,
        [
            None
            if absent[row]
            else {name: field.rows[row] for name, field in found.items() if field.rows[row] is not None}
            for row in range(rows)
        ],
    )


@st.composite
def writes(draw: st.DrawFn, kinds: str = "sample signal vector") -> Write:
    """A table of any types, and the rows that say the same."""
    rows, kind = draw(st.integers(1, 4)), draw(st.sampled_from(kinds.split()))
    hostile = draw(st.frozensets(st.sampled_from([*ENVELOPE, *PAYLOADS[kind], "extra"]), max_size=2))
    optional = ["priority", "source", "origin"]
    columns: dict[str, Field] = {}
    for name, usual in ENVELOPE.items():
        if name in optional and name not in hostile and not draw(st.booleans()):
            continue
        encodings = KINDS[kind] if name == "kind" and name not in hostile else usual
        needed = name not in optional
        columns[name] = draw(fields(encodings, rows, is_needed=needed, is_hostile=name in hostile))
    columns[kind] = draw(payloads(kind, rows, hostile))
    if "extra" in hostile:
        columns["extra"] = draw(fields([], rows, is_needed=False, is_hostile=True))
    table = pa.table({name: field.array for name, field in columns.items()})
    if draw(st.booleans()):
        table = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    elif draw(st.booleans()):
        table = pa.RecordBatch.from_arrays([field.array for field in columns.values()], names=list(columns))
    said = [
        {name: field.rows[row] for name, field in columns.items() if field.rows[row] is not None} for row in range(rows)
    ]
    return table, said


@settings(max_examples=100)
@given(writes())
def test_a_delta_in_columns_of_any_type_gets_the_verdict_and_is_stored_as_the_same_delta_in_a_row(
    write: Write,
) -> None:
    table, rows = write
    assert_same(table, rows)


@pytest.mark.slow
@settings(max_examples=3_000)
@given(writes())
def test_the_same_for_very_many_writes(write: Write) -> None:
    assert_same(*write)


@settings(max_examples=25)
@given(st.lists(st.tuples(writes(), st.booleans()), min_size=2, max_size=3))
def test_the_doors_agree_for_writes_of_both_forms_in_one_group(
    found: list[tuple[Write, bool]],
) -> None:
    mixed = [to_batch(table) if is_columns else own(rows) for (table, rows), is_columns in found]
    assert texts_of(without_raw(decide(*mixed)[0])) == texts_of(
        without_raw(decide(*(own(rows) for (_, rows), _ in found))[0])
    )


@settings(max_examples=100)
@given(writes())
def test_q3_in_any_form_a_delta_goes_to_the_shard_that_its_decoded_row_names(write: Write) -> None:
    table, rows = write
    in_json = [as_json(row) for row in rows if is_told(row)]
    for sent in (own(rows), own_columns(table), with_hashes(own_columns(table)), in_json):
        columns = decode(sent, SeriesNames()).columns
        expected = slots_of(columns["namespace"], columns["key"])
        assert slots_of(*keys_of(sent, SeriesNames())).tolist() == expected.tolist()


# The law finds what was wrong, if it is put back.


def _no_doubts(function: Callable[..., Taken]) -> Callable[..., Taken]:
    return lambda *arguments, **options: Taken(function(*arguments, **options).column)


def _clear_all(weights: Any) -> Any:
    found, is_clear = clear_millionths(weights)
    return found, is_clear | True


PLANTED: dict[str, tuple[str, Any, str, Any]] = {
    "clocks below zero or without a number are taken": (
        "vector",
        column_types,
        "_converted",
        lambda column, *_, **__: (column, None),
    ),
    "maps keep the order they came in": ("sample", column_types, "_in_order", Taken),
    "times that do not fit wrap around": ("signal", column_types, "_outside", lambda *_: None),
    "nanoseconds are rounded in JSON": ("signal", decode_rows, "_decoder", msgspec.json.Decoder(Delta)),
    "numbers above 64 bits wrap around": ("signal", column_types, "_some", lambda _: None),
    "weights are rounded in binary": ("signal", column_types, "clear_millionths", _clear_all),
    "columns that no delta has are passed over": ("sample", column_types, "unknown", lambda _: None),
    "payloads that do not fit their kind are passed over": ("signal", column_door, "_mismatches", lambda _: None),
    "ids that are missing are passed over": ("signal", column_types, "texts", _no_doubts(column_types.texts)),
    "lists with gaps are taken": ("vector", column_types, "lists", _no_doubts(column_types.lists)),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_law_finds_a_planted_bug(bug: str) -> None:
    kind, module, name, instead = PLANTED[bug]

    @settings(max_examples=400, phases=[Phase.generate], database=None, report_multiple_bugs=False)
    @given(writes(kind))
    def law(write: Write) -> None:
        assert_same(*write)

    with patch.object(module, name, instead), pytest.raises(AssertionError):
        law()
