"""A Parquet file is read in pieces of bounded memory, however much its few bytes stand for."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestration.cli.app import main
from tidemark.cli.inputs import InputError, read_parquet
from tidemark.cli.parquet_pieces import PIECE_BYTES, PiecesError, read_pieces
from tidemark.log.manifest import Manifest
from tidemark.storage.home import Home

MIB = 1024 * 1024
LARGE = "x" * (4 * MIB)


def repeated_large_value() -> pa.Table:
    """A dictionary of one value, and a run of its number."""
    return pa.table({"kind": pa.DictionaryArray.from_arrays(pa.array([0] * 5_000, pa.int32()), pa.array([LARGE]))})


def rows_of_nothing() -> pa.Table:
    return pa.table({"kind": pa.nulls(20_000_000, pa.string())})


def one_endless_list() -> pa.Table:
    numbers = pa.nulls(30_000_000, pa.float32())
    return pa.table(
        {"kind": ["vector"], "vector.values": pa.ListArray.from_arrays(pa.array([0, len(numbers)]), numbers)}
    )


def lists_of_lists() -> pa.Table:
    inner = pa.ListArray.from_arrays(pa.array([0, 20_000_000]), pa.nulls(20_000_000, pa.float64()))
    return pa.table({"kind": ["vector"], "vector.values": pa.ListArray.from_arrays(pa.array([0, 1]), inner)})


def one_long_text() -> pa.Table:
    return pa.table({"kind": ["x" * 400_000_000]})


def very_many_columns() -> pa.Table:
    return pa.table({f"c{number}": [1] for number in range(2_000)})


BOMBS: dict[Callable[[], pa.Table], str] = {
    repeated_large_value: "cannot be decoded within",
    rows_of_nothing: "claims 20,000,000 rows in ",
    one_endless_list: "in row 1, and a row may have",
    lists_of_lists: "in row 1, and a row may have",
    one_long_text: "row",  # by size or by memory, as the allocator has it
    very_many_columns: "has 2,000 columns",
}


@pytest.mark.parametrize(("bomb", "sentence"), BOMBS.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_a_bomb_is_refused_with_the_file_and_the_limit_and_this_process_stays_small(
    tmp_path: Path, bomb: Callable[[], pa.Table], sentence: str
) -> None:
    path = tmp_path / "bomb.parquet"
    pq.write_table(bomb(), path, compression="zstd", row_group_size=1 << 30, write_statistics=False)
    assert path.stat().st_size < 1_000_000
    done = subprocess.run(
        [sys.executable, "-c", SMALL_READER, str(path)], capture_output=True, text=True, check=True, timeout=300
    )
    said, grown_kib = done.stdout.splitlines()
    assert said.startswith(f"PiecesError: {path} ")
    assert sentence in said
    assert said.endswith(".")
    assert int(grown_kib) < 400 * 1024


# Reads as `send` does, and tells how much larger the process has become at its largest.
SMALL_READER = """
import resource, sys
from pathlib import Path
from tidemark.cli.parquet_pieces import PiecesError, read_pieces
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
try:
    for batch, done in read_pieces(Path(sys.argv[1]), memory_bytes=1 << 30): pass
except PiecesError as error:
    print(f"PiecesError: {error}")
print(peak() - before)
"""


@pytest.mark.parametrize("seed", range(6))
def test_damaged_bytes_end_in_rows_or_in_a_sentence_and_nothing_else(tmp_path: Path, seed: int) -> None:
    """Among them sizes of pages and counts of values that are not true."""
    path, chance = tmp_path / "damaged.parquet", random.Random(seed)
    pq.write_table(pa.table({"kind": ["signal"] * 5_000, "delta_id": [str(n) for n in range(5_000)]}), path)
    content = bytearray(path.read_bytes())
    for _ in range(3):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)
    rows, said = 0, None
    try:
        rows = sum(len(batch) for batch, _ in read_pieces(path, memory_bytes=256 * MIB))
    except PiecesError as error:
        said = str(error)
    assert rows == 5_000 if said is None else said.startswith(f"{path} cannot be ")


def test_large_rows_come_in_smaller_pieces_and_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    texts = [str(number) * (MIB // len(str(number))) for number in range(100)]
    pq.write_table(pa.table({"kind": texts}), path)
    found = [batch for batch, _ in read_pieces(path)]
    assert [text for batch in found for text in batch["kind"].to_pylist()] == texts
    assert max(batch.nbytes for batch in found) <= PIECE_BYTES
    again = [len(batch) for batch, _ in read_pieces(path)]
    assert again == [len(batch) for batch in found], "writes are numbered: the same file must give the same ones"


def test_ordinary_rows_come_a_thousand_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"kind": pa.array(["a", "b"] * 1_250).dictionary_encode()}), path)
    assert [(len(batch), done) for batch, done in read_pieces(path)] == [(1_000, 0.4), (1_000, 0.8), (500, 1.0)]


def test_who_stops_reading_leaves_no_decoder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"kind": ["x" * 1_000] * 100_000}), path, use_dictionary=False)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with closing(cast("Generator[object]", read_pieces(path))) as pieces:
        next(pieces)
        assert started[0].poll() is None
    assert started[0].returncode is not None


def test_a_file_that_becomes_unreadable_on_the_way_is_sent_up_to_there_and_known_when_corrected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Q2: what was sent before the file was corrected is not counted twice, and the rest is not lost."""
    home, path = Home(tmp_path / "home"), tmp_path / "day.parquet"
    rows = [
        {"namespace": "shop", "kind": "signal", "delta_id": f"d{n}", "event_ts": "2026-03-02T10:00:00Z"}
        | {"signal": {"entity_id": "a", "signal": "view"}}
        for n in range(2_500)
    ]
    wrong = {**rows[2_200], "delta_id": "x" * (PIECE_BYTES + 1)}
    pq.write_table(pa.Table.from_pylist([*rows[:2_200], wrong, *rows[2_201:]]), path)
    assert main(["send", str(path), "--home", str(home.root)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "in row 2,201" in said
    assert "known by their ids" in said
    sent = sum(entry.verdicts.accepted for entry in Manifest(home.segments(0)).all())
    assert 2_000 <= sent <= 2_200
    assert f"The {sent:,} deltas before that were sent" in said
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert main(["send", str(path), "--json", "--home", str(home.root)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["accepted"], answer["duplicate"], answer["refused"]) == (2_500 - sent, sent, 0)


def test_what_is_no_parquet_is_an_error_of_the_input(tmp_path: Path) -> None:
    for content in (b"", b"PAR1", b"PAR1" + b"\xff" * 50 + b"PAR1", b"PAR1\xff\xff\xff\x7fPAR1"):
        (tmp_path / "a.parquet").write_bytes(content)
        with pytest.raises(InputError, match=r"a\.parquet cannot be read as Parquet"):
            list(read_parquet(tmp_path / "a.parquet"))
