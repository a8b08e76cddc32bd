"""`verify`: every stored byte is read again, and every damage is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli.app import main
from tests.support.live import new_home, open_platform, signal
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = new_home(tmp_path / "home", "shards = 2\n")
    for life in range(2):
        with open_platform(home) as platform:
            deltas = [signal(f"d{life}-{n}", entity=f"item-{n}") for n in range(40)]
            platform.producer("shop_floor").write(deltas).wait()
    return home


def verify(home: Home, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["verify", "--json", "--home", str(home.root)])
    return code, json.loads(capsys.readouterr().out)


def test_an_unharmed_home_is_proved(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    code, proof = verify(home, capsys)
    assert code == 0
    assert (proof["segments"], proof["manifest_entries"], proof["deltas"]) == (4, 4, 80)
    assert proof["damage"] == []


def test_every_damaged_segment_is_named_and_none_hides_another(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = sorted(home.segments(0).rglob("*.parquet"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-1])
    next(home.segments(1).rglob("*.parquet")).unlink()
    code, proof = verify(home, capsys)
    assert code == 1
    assert len(proof["damage"]) == 3
    assert all(name in " ".join(proof["damage"]) for name in (first.name, second.name, "missing"))
    assert proof["segments"] == 1


def test_a_missing_manifest_line_is_named(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = next(home.segments(0).glob("manifest-*.jsonl"))
    manifest.write_bytes(b"\n".join(manifest.read_bytes().splitlines()[1:]) + b"\n")
    code, proof = verify(home, capsys)
    assert code == 1
    assert "manifest" in proof["damage"][0]


def test_a_damaged_state_file_is_named(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    state = home.log(1) / "state.json"
    state.write_bytes(state.read_bytes().replace(b"shop_floor", b"shop_flaw!"))
    code, proof = verify(home, capsys)
    assert code == 1
    assert "state.json" in proof["damage"][0]


def test_verifying_changes_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in home.root.rglob("*")}
    verify(home, capsys)
    assert {path: path.stat().st_mtime_ns for path in home.root.rglob("*")} == before
