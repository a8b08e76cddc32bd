"""`send`: a file becomes writes; sent again it changes nothing; what is wrong in it is kept with its reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestration.cli.app import main
from tidemark.cli.send import name_by_content
from tidemark.log.manifest import Manifest
from tidemark.storage.home import Home

Send = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create("shards = 2\n")


@pytest.fixture
def send(home: Home, capsys: pytest.CaptureFixture[str]) -> Send:
    def run(*arguments: str | Path) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["send", "--json", "--home", str(home.root), *map(str, arguments)]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return run


def signal(number: int, **fields: Any) -> dict[str, Any]:
    payload = {"entity_id": f"item-{number % 50}", "signal": "view"}
    return {
        "namespace": "shop",
        "kind": "signal",
        "delta_id": f"d{number}",
        "event_ts": "2026-03-02T10:00:00Z",
        "signal": payload,
        **fields,
    }


def write_lines(path: Path, deltas: list[dict[str, Any]], *extra: bytes) -> Path:
    path.write_bytes(b"\n".join([*(json.dumps(delta).encode() for delta in deltas), *extra]) + b"\n")
    return path


def sealed_rows(home: Home) -> pa.Table:
    files = [home.segments(shard) / entry.file for shard in range(2) for entry in Manifest(home.segments(shard)).all()]
    return pa.concat_tables([pq.read_table(file) for file in files], promote_options="default")


def test_a_file_is_sent_in_writes_of_a_thousand_and_sealed(home: Home, send: Send, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "day.jsonl", [signal(number) for number in range(2_500)])
    answer = send(path)
    assert (answer["writes"], answer["deltas"], answer["accepted"]) == (3, 2_500, 2_500)
    assert answer["producer"] == name_by_content(path)
    rows = sealed_rows(home)
    assert len(rows) == 2_500
    assert set(rows["producer"].to_pylist()) == {answer["producer"]}
    assert sorted(answer["epochs"]) == ["0", "1"]


def test_the_same_file_sent_again_is_answered_as_sent_before_and_changes_nothing(
    home: Home, send: Send, tmp_path: Path
) -> None:
    deltas = [signal(number) for number in range(1_200)]
    send(write_lines(tmp_path / "day.jsonl", deltas))
    before = [Manifest(home.segments(shard)).head for shard in range(2)]
    answer = send(write_lines(tmp_path / "copy of day.jsonl", deltas))
    assert (answer["sent_before"], answer["accepted"], answer["epochs"]) == (1_200, 0, {})
    assert [Manifest(home.segments(shard)).head for shard in range(2)] == before


def test_a_file_goes_on_where_it_stopped(
    home: Home, send: Send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemark.coordinator.platform import Producer

    path = write_lines(tmp_path / "day.jsonl", [signal(number) for number in range(3_000)])
    whole = Producer.write
    taken: list[object] = []

    def interrupted(self: Producer, deltas: Any) -> Any:
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(deltas)
        return whole(self, deltas)

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "write", interrupted)
        assert main(["send", "--home", str(home.root), str(path)]) == 130
    answer = send(path)
    assert (answer["sent_before"], answer["accepted"], answer["duplicate"]) == (2_000, 1_000, 0)
    assert len(sealed_rows(home)) == 3_000


def test_a_named_producer_is_numbered_on_so_that_copies_are_found_by_their_ids(
    home: Home, send: Send, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "day.jsonl", [signal(number) for number in range(10)])
    assert send(path, "--producer", "shop_floor")["accepted"] == 10
    again = send(path, "--producer", "shop_floor")
    assert (again["duplicate"], again["sent_before"]) == (10, 0)
    assert len(sealed_rows(home)) == 20


def test_what_is_wrong_is_refused_with_its_reason_and_its_neighbours_are_not(
    home: Home, send: Send, tmp_path: Path
) -> None:
    wrong = [signal(2, kind="rumour"), signal(3, event_ts="9999-12-31T00:00:00Z")]
    path = write_lines(tmp_path / "day.jsonl", [signal(1), *wrong, signal(4)], b"{ not json")
    answer = send(path)
    assert answer["accepted"] == 2
    assert answer["reasons"] == {"unknown_kind": 1, "from_the_future": 1, "malformed": 1}
    kept = [raw for raw in sealed_rows(home)["raw"].to_pylist() if raw]
    assert b"{ not json" in kept


def test_csv_and_parquet_give_the_same_deltas_as_json_lines(home: Home, send: Send, tmp_path: Path) -> None:
    csv = tmp_path / "a.csv"
    csv.write_text(
        "namespace,kind,delta_id,event_ts,signal.entity_id,signal.signal,signal.weight\n"
        "shop,signal,d1,2026-03-02T10:00:00Z,item-1,buy,1.000001\n"
    )
    parquet = tmp_path / "a.parquet"
    payload = {"entity_id": "item-1", "signal": "buy", "weight": 1.000001}
    pq.write_table(pa.Table.from_pylist([signal(1, signal=payload)]), parquet)
    lines = write_lines(tmp_path / "a.jsonl", [signal(1, signal=payload)])
    assert send(csv)["accepted"] == 1
    assert send(parquet)["duplicate"] == 1
    assert send(lines)["duplicate"] == 1
    assert {row["weight_millionths"] for row in sealed_rows(home)["signal"].to_pylist()} == {1_000_001}


def test_standard_input_is_read_as_json_lines(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_lines(tmp_path / "piped", [signal(number) for number in range(3)])
    with path.open() as piped:
        monkeypatch.setattr("sys.stdin", piped)
        assert main(["send", "-", "--json", "--home", str(home.root)]) == 0
    assert json.loads(capsys.readouterr().out)["accepted"] == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["day.unknown"],
        ["day.jsonl", "--producer", "Not Plain"],
        ["day.jsonl", "--producer", "plain\n"],
        ["day.jsonl", "--format", "xml"],
    ],
)
def test_wrong_usage_ends_with_2_and_sends_nothing(home: Home, tmp_path: Path, arguments: list[str]) -> None:
    for name in ("day.unknown", "day.jsonl"):
        write_lines(tmp_path / name, [signal(1)])
    name, *options = arguments
    assert main(["send", "--home", str(home.root), str(tmp_path / name), *options]) == 2
    assert not home.segments(0).exists()


def test_an_empty_file_sends_nothing_and_says_why(
    home: Home, send: Send, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"\n\n")
    answer = send(empty)
    assert (answer["writes"], answer["deltas"], answer["epochs"]) == (0, 0, {})
    assert main(["send", "--home", str(home.root), str(empty)]) == 0
    said = capsys.readouterr().out
    assert "has no deltas" in said
    assert "sent before" not in said


def test_a_file_of_which_everything_was_refused_ends_with_1(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = write_lines(tmp_path / "wrong.jsonl", [signal(number, kind="rumour") for number in range(3)])
    assert main(["send", "--json", "--home", str(home.root), str(wrong)]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["refused"] == 3
    assert "every delta was refused" in " ".join(captured.err.split())
