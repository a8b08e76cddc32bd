"""`send` over a connection: the same report, and a file that is sent again goes on where it stopped."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.network import Served
from orchestration.cli.app import main
from tests.chaos.test_network import free_port
from tests.support.served import ServedHome, home_at, served
from tidemark.gateway.access.tokens import TokenStore
from tidemark.gateway.places import read_serving
from tidemark.storage.home import Home
from tidemark.testing import server

Send = Callable[..., dict[str, Any]]


@pytest.fixture
def send(capsys: pytest.CaptureFixture[str]) -> Send:
    def run(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["send", "--json", *map(str, arguments)]) == code
        said = capsys.readouterr()
        answer: dict[str, Any] = json.loads(said.out) if code == 0 else {"error": " ".join(said.err.split())}
        return answer

    return run


@pytest.fixture
def door(tmp_path: Path) -> Iterator[ServedHome]:
    with served(home_at(tmp_path / "served")) as found:
        yield found


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


def write_lines(path: Path, deltas: list[Any], *extra: bytes) -> Path:
    path.write_bytes(b"\n".join([*(json.dumps(delta).encode() for delta in deltas), *extra]) + b"\n")
    return path


def test_a_file_is_sent_to_a_server_and_sent_again_changes_nothing(
    door: ServedHome, send: Send, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "day.jsonl", [signal(number) for number in range(2_500)], b"nonsense")
    first = send(path, "--to", door.url)
    assert first["producer"].startswith("send_w1_")
    assert [first[name] for name in ("writes", "deltas", "accepted", "refused")] == [3, 2_501, 2_500, 1]
    assert first["reasons"] == {"malformed": 1}
    assert first["epochs"] == {"0": {"from": 1, "to": 4}}
    again = send(path, "--to", door.url)
    assert [again[name] for name in ("deltas", "accepted", "sent_before", "reasons")] == [2_501, 0, 2_501, {}]
    assert door.platform.shards[0].applied_epoch == 3


@pytest.mark.parametrize("size", [1, 20_000])
def test_an_interrupted_file_goes_on_where_it_stopped(send: Send, tmp_path: Path, size: int) -> None:
    """Also when its deltas are so large that a chunk makes several writes."""
    path = write_lines(tmp_path / "day.jsonl", [signal(number, text="x" * size) for number in range(1_500)])
    with server() as found:
        whole = send(path, "--to", found.url)
        writes = len(found.writes(whole["producer"]))
        assert writes == (2 if size == 1 else 5)
        found.forget(whole["producer"], writes - 1)
        again = send(path, "--to", found.url)
        assert again["accepted"] + again["sent_before"] == 1_500
        assert 0 < again["sent_before"] < 1_500
        assert [delta["delta_id"] for delta in found.deltas] == [f"d{number}" for number in range(1_500)]


def test_csv_and_parquet_arrive_as_the_deltas_that_json_lines_are(door: ServedHome, send: Send, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "namespace,kind,delta_id,event_ts,signal.entity_id,signal.signal\n"
        "shop,signal,d1,2026-03-02T10:00:00Z,item-1,view\nshop,signal,d2,2026-03-02T10:00:00Z,item-2,\n"
    )
    answer = send(tmp_path / "a.csv", "--to", door.local)
    assert (answer["accepted"], answer["reasons"]) == (1, {"missing_field": 1})
    pq.write_table(pa.Table.from_pylist([signal(number) for number in range(1, 4)]), tmp_path / "a.parquet")
    answer = send(tmp_path / "a.parquet", "--to", door.local, "--producer", "web")
    assert (answer["accepted"], answer["duplicate"]) == (2, 1)


def test_refusals_that_the_server_has_not_named_are_counted(door: ServedHome, send: Send, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "bad.jsonl", [signal(0), *range(300)])
    assert send(path, "--to", door.url)["reasons"] == {"malformed": 100, "(not named by the server)": 200}


def test_a_token_is_read_from_a_file_and_a_wrong_one_is_told(door: ServedHome, send: Send, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "day.jsonl", [signal(0)])
    token, _ = TokenStore(door.home).create("sender", ["write:shop"])
    (tmp_path / "token").write_text(f"{token}\n")
    assert send(path, "--to", door.url, "--token-file", tmp_path / "token")["accepted"] == 1
    (tmp_path / "token").write_text("tdm_wrong\n")
    assert "The server refuses" in send(path, "--to", door.url, "--token-file", tmp_path / "token", code=1)["error"]
    (tmp_path / "token").write_text("\n")
    assert "is empty" in send(path, "--to", door.url, "--token-file", tmp_path / "token", code=2)["error"]
    assert "add --to" in send(path, "--token-file", tmp_path / "token", code=2)["error"]


def test_an_address_where_nobody_listens_is_told(send: Send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.cli.send.CONNECT_S", 0.2)
    path = write_lines(tmp_path / "day.jsonl", [signal(0)])
    error = send(path, "--to", f"tidemark://127.0.0.1:{free_port()}", code=1)["error"]
    assert "no connection to" in error
    assert "no address" in send(path, "--to", "localhost", code=1)["error"]


def test_while_a_process_serves_the_home_a_file_goes_through_it(send: Send, tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    path = write_lines(tmp_path / "day.jsonl", [signal(number) for number in range(1_200)], *[b"nonsense"] * 150)
    process = Served(home.root, free_port())
    try:
        process.wait_until_there()
        assert read_serving(home) is not None
        answer = send("--home", home.root, path)
        assert answer["reasons"] == {"malformed": 150}, "from the segments, which are sealed"
        assert answer["epochs"] == {"0": {"from": 1, "to": 3}}
        assert send("--home", home.root, path)["sent_before"] == 1_350
    finally:
        process.stop()
    assert len(process.received()) == 1_350
