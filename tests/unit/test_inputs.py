"""From a file to deltas: nothing is judged, nothing is lost."""

import gzip
import io
import math
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.cli import inputs
from tidemark.door.decode import DELTA_LIMIT, decode
from tidemark.model.deltas import Reason
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import SENT_FIELDS, TIMESTAMP

SIGNAL = {
    "namespace": "shop",
    "kind": "signal",
    "delta_id": "d1",
    "event_ts": "2026-03-02T10:00:00Z",
    "signal.entity_id": "item-1",
    "signal.signal": "view",
}


def read_csv(text: str) -> list[dict[str, Any]]:
    return [row for row, _ in inputs.read_csv(inputs.CsvLines(io.StringIO(text)))]


def reasons(deltas: list[Any]) -> list[Reason | None]:
    refusals = decode(deltas, SeriesNames()).refusals
    return [refusals[row].reason if row in refusals else None for row in range(len(deltas))]


def test_dotted_names_are_nested() -> None:
    flat = {"kind": "signal", "signal.entity_id": "a", "signal.count": 2}
    assert inputs.lift(flat) == {"kind": "signal", "signal": {"entity_id": "a", "count": 2}}


@pytest.mark.parametrize("name", ["a.b.c", ".b", "a."])
def test_a_dotted_name_without_a_place_stays_as_it_is(name: str) -> None:
    assert inputs.lift({name: 1}) == {name: 1}


def test_a_dotted_name_below_a_plain_value_does_not_overwrite_it() -> None:
    assert inputs.lift({"signal": "x", "signal.count": 1}) == {"signal": "x", "signal.count": 1}


def test_csv_cells_are_read_by_the_type_of_their_field() -> None:
    header = "namespace,kind,delta_id,event_ts,vector.vector_id,vector.op,vector.values,vector.clock,vector.factor"
    row = read_csv(f'{header}\nshop,vector,d1,1772445600000000,v,create,"[0.5, 1]","{{""a"": 3}}",2e3\n')[0]
    assert row["event_ts"] == 1_772_445_600_000_000
    assert row["vector"] == {"vector_id": "v", "op": "create", "values": [0.5, 1], "clock": {"a": 3}, "factor": 2000.0}


def test_an_empty_cell_is_a_field_that_is_not_there() -> None:
    row = read_csv(",".join([*SIGNAL, "sample.value"]) + "\n" + ",".join([*SIGNAL.values(), ""]) + "\n")[0]
    assert "sample" not in row
    assert reasons([row]) == [None]


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("signal.count", "many", Reason.WRONG_TYPE),
        ("signal.count", "1.5", Reason.WRONG_TYPE),
        ("signal.count", "1_000", Reason.WRONG_TYPE),
        ("signal.weight", "nan", Reason.NOT_FINITE),
        ("signal.weight", "heavy", Reason.WRONG_TYPE),
        ("event_ts", "yesterday", Reason.BAD_TIMESTAMP),
        ("colour", "red", Reason.UNKNOWN_FIELD),
        ("signal.colour", "red", Reason.UNKNOWN_FIELD),
        ("delta_id", "", Reason.MISSING_FIELD),
    ],
)
def test_a_cell_that_cannot_be_read_is_passed_on_and_refused(column: str, cell: str, reason: Reason) -> None:
    cells = SIGNAL | {column: cell}
    rows = read_csv(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    assert reasons(rows) == [reason]


def test_a_row_with_too_many_cells_is_refused_and_keeps_them() -> None:
    row = read_csv(",".join(SIGNAL) + "\n" + ",".join(SIGNAL.values()) + ",extra\n")[0]
    assert "extra" in str(row)
    assert reasons([row]) == [Reason.UNKNOWN_FIELD]


def test_a_row_with_too_few_cells_lacks_fields() -> None:
    assert reasons(read_csv(",".join(SIGNAL) + "\nshop,signal\n")) == [Reason.MISSING_FIELD]


def test_values_of_every_number_are_exact() -> None:
    row = inputs.from_cells(
        {"signal.weight": "0.000001", "signal.count": "-9223372036854775808", "sample.value": "-inf"}
    )
    assert row == {"signal": {"weight": 1e-6, "count": -(2**63)}, "sample": {"value": -math.inf}}


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "kind,kind\nsignal,signal\n"])
def test_a_csv_file_without_a_usable_header_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(inputs.InputError, match="first line"):
        read_csv(text)


class Endless:
    """A CSV file that goes on for ever, and tells how much of it was asked for."""

    def __init__(self, start: str, more: str) -> None:
        self._start, self._more, self.given = start, more, 0

    def readline(self, size: int = -1) -> str:
        assert size > 0, "a line must be asked for in pieces"
        line, self._start = self._start or (self._more * (size // len(self._more) + 1))[:size], ""
        self.given += len(line)
        return line


@pytest.mark.parametrize(
    ("start", "more"),
    [("", "x"), ("kind\n", "x"), ("kind\n", "x,"), ("kind\n", '"'), ('kind\n"', "x\n"), ("kind\n", '"x\n",')],
)
def test_csv_without_an_end_is_refused_with_the_line_before_it_fills_the_memory(start: str, more: str) -> None:
    file = Endless(start, more)
    with pytest.raises(inputs.InputError, match=r"day\.csv cannot be read on from line [12]: ") as refused:
        list(inputs.read_csv(inputs.CsvLines(cast("IO[str]", file)), "day.csv"))
    assert "Correct that line, and send the file again." in str(refused.value)
    assert file.given <= 2 * inputs.CSV_ROW_LIMIT


@pytest.mark.parametrize(
    ("column", "cell"), [("signal.count", "9" * 5_000), ("vector.values", "[" * 100_000), ("vector.clock", "1" * 5_000)]
)
def test_a_cell_that_python_will_not_read_is_passed_on_as_text(column: str, cell: str) -> None:
    group, _, field = column.partition(".")
    assert inputs.from_cells({column: cell}) == {group: {field: cell}}


@pytest.mark.parametrize(
    ("content", "kind"), [(gzip.compress(b"{}", mtime=0), "gzip"), (b"PAR1....", "Parquet"), (b"PK\x03\x04..", "zip")]
)
def test_a_packed_file_is_named_as_such_instead_of_refused_line_by_line(
    tmp_path: Path, content: bytes, kind: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(inputs.InputError, match=rf"a\.jsonl is not text: it is .*{kind}"):
        inputs.refuse_packed(tmp_path / "a.jsonl")


def test_chunks_of_large_deltas_are_smaller() -> None:
    found = list(inputs.chunks([b"x" * 10] * 7, size=5, most_bytes=30, weigh=len))
    assert [len(chunk) for chunk in found] == [3, 3, 1]


def test_json_lines_are_passed_on_as_they_are_and_blank_ones_are_left_out() -> None:
    file = io.BytesIO(b'{"kind": "signal"}\r\n\n   \nnot json\n{"last": 1}')
    assert list(inputs.read_json_lines(file)) == [b'{"kind": "signal"}', b"not json", b'{"last": 1}']


def test_an_endless_line_is_cut_and_refused_and_the_next_one_is_read_whole() -> None:
    lines = list(inputs.read_json_lines(io.BytesIO(b"x" * (3 * DELTA_LIMIT) + b"\n{}\n")))
    assert lines[1:] == [b"{}"]
    assert reasons(lines[:1]) == [Reason.TOO_LARGE]


def test_chunks_keep_order_and_lose_nothing() -> None:
    found = list(inputs.chunks([b"%d" % n for n in range(7)], size=3, weigh=len))
    assert found == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]


def test_parquet_in_the_form_of_the_log_stays_in_columns(tmp_path: Path) -> None:
    path = tmp_path / "native.parquet"
    pq.write_table(pa.table({"kind": ["signal"] * 3}, schema=pa.schema([("kind", dict(SENT_FIELDS)["kind"])])), path)
    [(batch, done)] = list(inputs.read_parquet(path))
    assert isinstance(batch, pa.RecordBatch)
    assert done == 1.0


def test_parquet_with_nested_or_dotted_columns_is_read_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    moments = pa.array([1_772_445_600_000_000_123], pa.timestamp("ns"))
    metadata = pa.array([[("title", None)]], pa.map_(pa.string(), pa.string()))
    pq.write_table(
        pa.table(
            {
                "namespace": ["shop"],
                "kind": ["vector"],
                "delta_id": ["d"],
                "event_ts": moments,
                "vector.vector_id": ["v"],
                "vector.op": ["delete"],
                "vector.parent_id": pa.nulls(1, pa.string()),
                "vector.metadata": metadata,
                "signal": pa.nulls(1, pa.struct([("entity_id", pa.string())])),
            }
        ),
        path,
    )
    [(read, _)] = list(inputs.read_parquet(path))
    rows: list[Any] = list(read)
    assert rows[0]["vector"] == {"vector_id": "v", "op": "delete", "metadata": {"title": None}}
    assert pa.scalar(rows[0]["event_ts"], TIMESTAMP).value == 1_772_445_600_000_000
    assert reasons(rows) == [None]


def test_a_file_that_is_no_parquet_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(inputs.InputError, match="cannot be read as Parquet"):
        list(inputs.read_parquet(path))


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a.csv", "csv"), ("a.parquet", "parquet"), ("a", None)],
)
def test_the_format_is_known_by_the_name(name: str, form: str | None) -> None:
    assert inputs.format_of(Path(name)) == form
