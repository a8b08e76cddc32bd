"""Parquet in pieces of bounded memory, whatever the file claims.

Belongs here: the process that decodes a file, and the one that reads from it. A few kilobytes of Parquet can stand for
any amount of memory: runs of one value, dictionaries, lists, pages, and sizes that are simply false. Some of this shows
only during decoding, so the decoder is a process of its own with a limit that the system enforces. If it needs more, it
ends, and the process around it (the coordinator with every producer's deltas) goes on.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from tidemark.model.errors import TidemarkError

ROWS = 1_000  # in a piece, unless they are too large
# The most bytes of a decoded piece. Far above a thousand deltas of any usual kind.
PIECE_BYTES = 32 * 1024 * 1024
# For decoding: a thousand of the largest vectors, several times over.
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
# A delta has a few dozen.
COLUMN_LIMIT = 1_000
# Rows with different ids need more space than this. It is generous, and only for files that claim very many.
ROWS_PER_BYTE, ROWS_WITHOUT_PROOF = 100, 1_000_000
REFUSED = 3  # exit code: the last line on standard error says why
_ROWS_KEY = b"tidemark.rows"


class PiecesError(TidemarkError):
    """A Parquet file that cannot be read, or not within the limits; the rows before the error were yielded."""


def read_pieces(path: Path, *, memory_bytes: int = MEMORY_BYTES) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Consecutive rows, with the fraction of the file that is done."""
    decoder = subprocess.Popen(
        [sys.executable, "-P", "-m", "tidemark.cli.parquet_pieces", str(path.absolute()), str(memory_bytes)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Memory from the system's own allocator, none in advance: the limit then means what it says.
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"},
    )
    output, notes = cast("IO[bytes]", decoder.stdout), cast("IO[bytes]", decoder.stderr)
    done = 0
    try:
        try:
            with pa.ipc.open_stream(output) as stream:
                rows = int(stream.schema.metadata[_ROWS_KEY])
                for batch in stream:
                    done += len(batch)
                    yield batch, done / rows
        except (pa.ArrowInvalid, OSError):
            if decoder.wait() == 0:
                raise
        said = notes.read().decode(errors="replace").splitlines()
        if decoder.wait() == REFUSED:
            raise PiecesError(f"{path} {said[-1]}")
        if decoder.returncode:
            raise PiecesError(f"{path} {_too_large(done, memory_bytes)}")
    finally:
        decoder.kill()
        decoder.wait()
        output.close()
        notes.close()


def _too_large(done: int, memory_bytes: int) -> str:
    return (
        f"cannot be decoded within {memory_bytes // 1024 // 1024:,} MiB of memory, after row {done:,}. "
        "If its values really are that large, write it again with smaller ones, or as JSON lines."
    )


class _Refused(Exception):  # noqa: N818 - it carries a sentence and is no failure of ours
    """Why the decoder stops."""


def _decode(path: str, memory_bytes: int) -> None:
    import pyarrow.parquet as pq

    done = 0
    try:
        # Streamed: only the page of a column that is being decoded is in memory.
        with pq.ParquetFile(path, buffer_size=1024 * 1024, pre_buffer=False) as file:
            _check_claims(file.metadata, Path(path).stat().st_size)
            schema = pa.schema([field.with_type(_plain(field.type)) for field in file.schema_arrow])
            stated = schema.with_metadata({_ROWS_KEY: str(file.metadata.num_rows)})
            with pa.ipc.new_stream(sys.stdout.buffer, stated) as out:
                for batch in file.iter_batches(ROWS, use_threads=False):
                    for piece in _pieces(batch.cast(schema), done):
                        out.write_batch(piece.replace_schema_metadata(stated.metadata))
                        done += len(piece)
    except MemoryError:
        raise _Refused(_too_large(done, memory_bytes)) from None
    except (pa.ArrowException, OSError) as error:
        raise _Refused(f"cannot be read as Parquet: {error}.".replace("\n", " ")) from error


def _check_claims(metadata: Any, size: int) -> None:
    rows, columns = metadata.num_rows, metadata.num_columns
    if columns > COLUMN_LIMIT:
        raise _Refused(f"has {columns:,} columns, and at most {COLUMN_LIMIT:,} are read. Leave out those of no delta.")
    if rows > max(ROWS_WITHOUT_PROOF, size * ROWS_PER_BYTE):
        raise _Refused(
            f"claims {rows:,} rows in {size:,} bytes, more than {ROWS_PER_BYTE} a byte: rows with different ids "
            "need more space. Check the program that wrote it, or send the rows as JSON lines."
        )


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without a dictionary, which would travel with every piece."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _pieces(batch: pa.RecordBatch, done: int) -> Iterator[pa.RecordBatch]:
    """A batch, in halves as long as it is too large; the same rows give the same pieces, because writes count."""
    if batch.nbytes <= PIECE_BYTES:
        yield batch
    elif len(batch) > 1:
        half = len(batch) // 2
        yield from _pieces(batch.slice(0, half), done)
        yield from _pieces(batch.slice(half), done + half)
    else:
        raise _Refused(
            f"has {batch.nbytes:,} bytes in row {done + 1:,}, and a row may have {PIECE_BYTES:,}. Leave the row out, "
            "or correct it, and send the file again."
        )


def _used_bytes() -> int:
    """Memory of this process before it reads the file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0  # not Linux
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)


def _main() -> int:
    path, memory_bytes = sys.argv[1], int(sys.argv[2])
    limit = _used_bytes() + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _decode(path, memory_bytes)
    except _Refused as why:
        sys.stderr.write(f"{why}\n")
        sys.stderr.flush()
        return REFUSED
    return 0


if __name__ == "__main__":
    # Nothing needs closing, and after a failed allocation it is best to do little.
    code = _main()
    sys.stdout.flush()
    os._exit(code)
