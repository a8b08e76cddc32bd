"""Files of deltas, as a producer would write them: JSON lines, CSV and Parquet.

Belongs here: from a file to what `Producer.write` takes, a thousand at a time. Nothing is judged here: what cannot be
read as a delta is passed on as it is, so that the coordinator refuses it, says why and keeps it.

Columns of CSV (and of flat Parquet) are named by their place in a delta: `namespace`, `signal.entity_id`. A cell of a
list or a map holds JSON. CSV cannot tell an empty text from none, so an empty cell is a field that is not there.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from resources.coordinator.decode import DELTA_LIMIT
from resources.coordinator.schema import SENT_FIELDS, TIMESTAMP
from resources.errors import TidemarkError

if TYPE_CHECKING:
    from resources.coordinator.decode import Sent

CHUNK = 1_000  # deltas in one write: large enough to be fast, small enough that an interrupted file loses little
FORMATS = ("jsonl", "csv", "parquet")
PAYLOADS = ("vector", "sample", "signal")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


class InputError(TidemarkError):
    """A file that cannot be read at all, as opposed to one with bad deltas in it."""


def format_of(path: Path) -> str | None:
    """The format that the file's name promises."""
    return _SUFFIXES.get(path.suffix.lower())


def lift(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nest dotted names: `{"signal.count": 1}` becomes `{"signal": {"count": 1}}`.

    A name that has no place (two dots, or below something that is no object) stays as it is: the coordinator will
    call it an unknown field.
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
    """A row of CSV as a delta: empty cells left out, numbers and JSON read, everything else passed on as text."""
    present = {}
    for name, cell in row.items():
        if name is None:
            # More cells than columns; under this name they are refused as an unknown field, and are kept.
            present["(beyond the header)"] = cell
        elif cell:
            present[name.strip()] = _CELLS.get(name.strip(), _text)(cell)
    return lift(present)


def without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of Parquet as a delta: nulls are fields that are not there (in maps they mean something and stay)."""
    return _present(
        {
            name: _present(value) or None if name in PAYLOADS and isinstance(value, dict) else value
            for name, value in lift(row).items()
        }
    )


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def chunks(items: "Iterable[Sent]", size: int = CHUNK) -> "Iterator[list[Sent]]":
    """Consecutive lists of up to `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def read_json_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Each line that is not blank, as it is; of an endless one only as much as shows that it is too long."""
    while line := file.readline(DELTA_LIMIT + 2):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(DELTA_LIMIT)
        if line.strip():
            yield line.rstrip(b"\r\n")


def read_csv(file: IO[str]) -> Iterator[dict[str, Any]]:
    """Each row as a delta."""
    csv.field_size_limit(DELTA_LIMIT)
    rows = csv.DictReader(file)
    try:
        header = [name.strip() for name in rows.fieldnames or []]
        if len(set(header)) < len(header) or "kind" not in header:
            raise InputError(
                f"The first line of the CSV file must name each column once, with 'kind' among them "
                f"(namespace, kind, delta_id, event_ts, signal.entity_id, …); it has {', '.join(header) or 'nothing'}."
            )
        yield from (from_cells(row) for row in rows)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"The CSV file cannot be read on from line {rows.line_num}: {error}.") from error


def read_parquet(path: Path) -> "Iterator[tuple[pa.RecordBatch | list[Sent], float]]":
    """A thousand rows at a time, with the part of the file that is done.

    They stay in columns where the file has the log's own columns; otherwise they are read row by row.
    """
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            is_native = _is_native(file.schema_arrow)
            rows = 0
            for batch in file.iter_batches(CHUNK):
                rows += len(batch)
                yield (batch if is_native else _rows(batch)), rows / file.metadata.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}.") from error


def _is_native(schema: pa.Schema) -> bool:
    """Whether the columns are what the coordinator takes as they are (with the weight in millionths)."""
    known = dict(SENT_FIELDS)
    return all(field.name in known and field.type == known[field.name] for field in schema) and "kind" in schema.names


def _rows(batch: pa.RecordBatch) -> "list[Sent]":
    for index, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type):
            # Nanoseconds have no place in a delta; a time without zone is UTC.
            moments = batch.column(index).cast(pa.timestamp("us", field.type.tz), safe=False).cast(TIMESTAMP)
            batch = batch.set_column(index, field.name, moments)
    return [without_nulls(row) for row in batch.to_pylist(maps_as_pydicts="strict")]


def _text(cell: str) -> Any:
    return cell


def _integer(cell: str) -> Any:
    return int(cell) if _INTEGER.fullmatch(cell.strip()) else cell


def _number(cell: str) -> Any:
    return float(cell) if _NUMBER.fullmatch(cell.strip()) else cell


def _json(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        return cell


# Cells that are not text, by column.
_CELLS: dict[str, Callable[[str], Any]] = {
    "event_ts": _integer,  # microseconds; a date stays text
    "signal.count": _integer,
    "signal.weight": _number,
    "sample.value": _number,
    "sample.labels": _json,
    "vector.values": _json,
    "vector.indices": _json,
    "vector.factor": _number,
    "vector.amount": _number,
    "vector.clock": _json,
    "vector.metadata": _json,
}
