"""`vector` at the command line: what is printed, what is refused, and what a question must not cost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.commands import ask
from tests.support.vector_lake import STEP_US, VectorLake
from tests.support.vector_oracle import Delta
from tidemark.model.timegrid import from_us, to_us
from tidemark.storage.home import Home
from tidemark.tables.lake_files import open_table

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pyspark", "dagster", "great_expectations", "pandas")


def _delta(place: int, **said: Any) -> Delta:
    envelope = {
        "namespace": "shop",
        "vector_id": "item-1",
        "origin": "app",
        "parent_id": None,
        "shard": 0,
        "ordinal": 0,
    }
    nothing = {"metadata": None, "clock": None}
    return {**envelope, **nothing, "delta_id": f"d{place}", "event_us": place * STEP_US, "epoch": place + 1, **said}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    lake = VectorLake(Home(tmp_path_factory.mktemp("vector") / "home").create())
    lake.send(
        [
            _delta(0, op="create", values=[float(number) for number in range(12)], metadata={"title": "lamp"}),
            _delta(1, op="add_dims", indices=[1, 11], values=[0.25, 1.0], clock={"app": 2}),
            _delta(2, op="scale", factor=0.1, parent_id="d1"),
            _delta(3, op="offset", amount=1.0, parent_id="missing"),
            _delta(4, op="delete"),
            _delta(4, vector_id="two", op="scale", factor=2.0),
        ]
    )
    lake.send([_delta(5, namespace=space, vector_id="both", op="create", values=[1.0]) for space in ("shop", "other")])
    return lake.home


def _moment(place: float) -> str:
    return from_us(round(place * STEP_US)).isoformat()


def _by_hand(home: Home, as_of_us: int) -> list[float] | None:
    """The values from the rows of `deltas`, one after the other; no delta here has a place other than its own time."""
    table = open_table(home.lake / "deltas")
    assert table is not None
    rows = [row for row in table.to_pyarrow_table().to_pylist() if row["key"] == "item-1"]
    known = {row["delta_id"] for row in rows}
    values: Any = None
    for row in sorted(rows, key=lambda row: row["event_ts"]):
        what = row["vector"]
        if to_us(row["event_ts"]) > as_of_us or (what["parent_id"] or "d0") not in known:
            continue
        if what["op"] == "create":
            values = np.array(what["values"], np.float64)
        elif what["op"] == "add_dims":
            values[what["indices"]] += what["values"]
        elif what["op"] == "scale":
            values = values * what["factor"]
        elif what["op"] == "delete":
            values = None
    return None if values is None else values.astype(np.float32).tolist()


@pytest.mark.parametrize("place", [0, 0.5, 1, 2, 3.5, 4, 9])
def test_vector_as_of_any_moment_equals_a_fold_by_hand_from_deltas(
    home: Home, capsys: pytest.CaptureFixture[str], place: float
) -> None:
    code, out, _ = ask(home, capsys, "vector", "item-1", "--as-of", _moment(place), "--json")
    assert code == 0
    assert json.loads(out)["values"] == _by_hand(home, round(place * STEP_US))


def test_vector_for_people_says_what_it_is_and_what_it_was_read_from(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = ask(home, capsys, "vector", "item-1", "--as-of", _moment(1))
    assert code == 0
    assert "[0, 1.25, 2, 3, 4, 5, 6, 7, … (12 in all)]" in out
    assert "title=lamp" in out
    assert "app=2" in out
    assert "state          live" in out
    _, out, _ = ask(home, capsys, "vector", "item-1", "--chain")
    assert "state          deleted" in out
    assert "1 wait for a parent" in out
    assert "parked" in out
    _, out, _ = ask(home, capsys, "vector", "two")
    assert "no base" in out
    _, out, _ = ask(home, capsys, "vector", "item-1", "--epoch", "1", "--json")
    assert json.loads(out)["deltas"]["deltas"] == 1


def test_vector_of_several_namespaces_must_be_told_which(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ask(home, capsys, "vector", "both")
    assert code == 1
    assert "other, shop have a vector 'both'" in err
    code, out, _ = ask(home, capsys, "vector", "both", "--namespace", "other", "--json")
    assert (code, json.loads(out)["namespace"]) == (0, "other")


def test_vector_that_is_not_there_is_refused_with_a_similar_name(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = ask(home, capsys, "vector", "itm-1")
    assert code == 1
    assert "'item-1' in shop" in err


def test_asking_for_a_vector_starts_neither_spark_nor_the_orchestrator(home: Home) -> None:
    program = (
        "import sys; from orchestration.cli.app import main; "
        f"code = main(['--home', {str(home.root)!r}, 'vector', 'item-1', '--chain'], is_own_process=True); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
