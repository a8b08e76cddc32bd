"""Files of deltas, as a producer would write them: JSON lines, CSV and Parquet.

Belongs here: from a file to the input of `Producer.write`, a thousand deltas at a time. Nothing is checked here: a line
that cannot be read as a delta is passed on as it is, so that the coordinator refuses it, says why and keeps it.

Columns of CSV (and of flat Parquet) are named by their place in a delta: `namespace`, `signal.entity_id`. A cell for a
list or a map contains JSON. CSV cannot tell an empty text from a missing one, so an empty cell is a missing field.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tidemark.cli.parquet_pieces import PIECE_BYTES, ROWS, PiecesError, read_pieces
from tidemark.door.decode import DELTA_LIMIT
from tidemark.door.row_objects import row_objects
from tidemark.model.deltas import KINDS, PAYLOADS, PayloadField
from tidemark.model.errors import TidemarkError
from tidemark.model.log_schema import SENT_FIELDS

if TYPE_CHECKING:
    from tidemark.door.decode import Sent

T = TypeVar("T")

# Deltas in one write: large enough to be fast, small enough that an interrupted file loses little. Fewer, if they have
# more bytes than this. A file that is sent again must give the same writes, so neither may change lightly.
CHUNK, CHUNK_BYTES = ROWS, PIECE_BYTES
CSV_ROW_LIMIT = 4 * DELTA_LIMIT  # a row above DELTA_LIMIT is refused like any other delta; one above this is not read
FORMATS = ("jsonl", "csv", "parquet")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "Parquet",
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


class InputError(TidemarkError):
    """A file that cannot be read at all, as opposed to one with bad deltas in it."""


def format_of(path: Path) -> str | None:
    """The format that the file's name indicates."""
    return _SUFFIXES.get(path.suffix.lower())


def lift(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nest dotted names: `{"signal.count": 1}` becomes `{"signal": {"count": 1}}`.

    A name without a place (two dots, or below a value that is no object) stays as it is: the coordinator will refuse
    it as an unknown field.
    """
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        head, _, rest = name.partition(".")
        below = nested.setdefault(head, {}) if head and rest and "." not in rest else None
        if isinstance(below, dict):
            below[rest] = value
        else:
            nested[name] = value
    return nested


def from_cells(row: Mapping[str | None, Any]) -> dict[str, Any]:
    """A row of CSV as a delta: empty cells left out, numbers and JSON parsed, everything else passed on as text."""
    present = {}
    for name, cell in row.items():
        if name is None:
            # More cells than columns; under this name they are refused as an unknown field, and kept.
            present["(beyond the header)"] = cell
        elif cell:
            present[name.strip()] = _CELLS.get(name.strip(), _text)(cell)
    return lift(present)


def without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of Parquet as a delta: nulls are missing fields (in maps they mean something and stay)."""
    return _present(
        {
            name: _present(value) or None if name in PAYLOADS and isinstance(value, dict) else value
            for name, value in lift(row).items()
        }
    )


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def chunks(
    items: "Iterable[T]", size: int = CHUNK, *, most_bytes: int = CHUNK_BYTES, weigh: "Callable[[T], int]"
) -> "Iterator[list[T]]":
    """Consecutive lists of up to `size` items, each closed by the item that brings it to `most_bytes`."""
    chunk: list[T] = []
    weight = 0
    for item in items:
        chunk.append(item)
        weight += weigh(item)
        if len(chunk) == size or weight >= most_bytes:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def read_json_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Each line that is not blank, as it is; of an endless line only enough to show that it is too long."""
    while line := file.readline(DELTA_LIMIT + 2):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(DELTA_LIMIT)
        if line.strip():
            yield line.rstrip(b"\r\n")


class CsvLines:
    """The lines of a CSV file; no line, and no row of several lines, is read beyond the limit of a row."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._in_row = file, 0

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(CSV_ROW_LIMIT + 1):
            self._in_row += len(line)
            if self._in_row > CSV_ROW_LIMIT:
                raise csv.Error(f"a row has more than {CSV_ROW_LIMIT:,} characters (is a quote not closed?)")
            yield line

    def end_row(self) -> int:
        """The length in characters of the row that was just read; the next one begins."""
        length, self._in_row = self._in_row, 0
        return length


def read_csv(lines: CsvLines, name: str = "The CSV file") -> Iterator[tuple[dict[str, Any], int]]:
    """Each row as a delta, and its length in characters."""
    csv.field_size_limit(DELTA_LIMIT)
    rows = csv.DictReader(lines)
    try:
        header = [column.strip() for column in rows.fieldnames or []]
        lines.end_row()
        if len(set(header)) < len(header) or "kind" not in header:
            found = ", ".join(header)[:500] or "nothing"
            raise InputError(
                f"The first line of {name} must name each column once, with 'kind' among them "
                f"(namespace, kind, delta_id, event_ts, signal.entity_id, …); it has {found}."
            )
        for row in rows:
            yield from_cells(row), lines.end_row()
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(
            f"{name} cannot be read on from line {rows.line_num + 1}: {error}. "
            "Correct that line, and send the file again."
        ) from error


def refuse_packed(path: Path) -> None:
    """Raise one clear error for a file that should be text and is something else, instead of refusing every line."""
    with path.open("rb") as file:
        start = file.read(8)
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            advice = "add --format parquet" if kind == "Parquet" else "unpack it first, and send its content"
            raise InputError(f"{path} is not text: it is {kind}. To send it, {advice}.")


def read_parquet(path: Path) -> "Iterator[tuple[pa.RecordBatch | list[Sent], float]]":
    """A thousand rows at a time, or fewer if they are large, with the fraction of the file that is done.

    They stay in columns if the file has the log's own columns; otherwise they are read row by row.
    """
    try:
        for batch, done in read_pieces(path):
            yield (batch if _is_native(batch.schema) else _rows(batch)), done
    except PiecesError as error:
        raise InputError(str(error)) from error


def _is_native(schema: pa.Schema) -> bool:
    """Whether the coordinator takes these columns as they are (with the weight in millionths)."""
    known = dict(SENT_FIELDS)
    return all(field.name in known and field.type == known[field.name] for field in schema) and "kind" in schema.names


def _rows(batch: pa.RecordBatch) -> "list[Sent]":
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    found = row_objects(columns, range(len(batch)))
    return [without_nulls(row) if isinstance(row, dict) else row for row in found]


def _text(cell: str) -> Any:
    return cell


def _integer(cell: str) -> Any:
    # Python parses no more digits than this by default, and no field holds as many.
    return int(cell) if len(cell) <= sys.int_info.default_max_str_digits and _INTEGER.fullmatch(cell.strip()) else cell


def _number(cell: str) -> Any:
    return float(cell) if _NUMBER.fullmatch(cell.strip()) else cell


def _json(cell: str) -> Any:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def _reader_of(field: PayloadField) -> Callable[[str], Any]:
    if not field.is_plain:
        return _json
    if field.type == "string":
        return _text
    return _integer if field.type == "int64" and not field.millionths_of else _number


# Cells that are not text, by column.
_CELLS: dict[str, Callable[[str], Any]] = {
    "event_ts": _integer,  # microseconds; a date stays text
    **{
        f"{kind}.{field.millionths_of or name}": reader
        for kind, rule in KINDS.items()
        for name, field in rule.fields.items()
        if (reader := _reader_of(field)) is not _text
    },
}
