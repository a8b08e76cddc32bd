"""`counts` and `retain` at the command line: what is printed, what is refused, and what a question must not cost."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ask
from tests.support.small_lake import Event, SmallLake
from tidemark.cli.counts import sparkline
from tidemark.model.timegrid import DAY_US, HOUR_US, to_us
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pyspark", "dagster", "great_expectations", "pandas")
MONDAY = to_us(datetime(2026, 3, 2, tzinfo=UTC))
AS_OF = ("--as-of", "2026-03-03T00:00Z")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    lake = SmallLake(Home(tmp_path_factory.mktemp("counts") / "home").create())
    lake.send(
        [
            Event(MONDAY - 40 * DAY_US, count=100),
            Event(MONDAY + 10 * HOUR_US, count=3, weight=1_500_000),
            Event(MONDAY + 10 * HOUR_US, signal="buy"),
            Event(MONDAY + 23 * HOUR_US, count=-1, weight=-2),
        ]
    )
    lake.roll_up_everything()
    return lake.home


def test_counts_prints_all_windows_as_json(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(home, capsys, "counts", "item-1", "--namespace", "shop", "--signal", "view", *AS_OF, "--json")
    answer: dict[str, Any] = json.loads(out)
    assert code == 0
    assert answer["as_of"] == "2026-03-03T00:00:00Z"
    assert answer["counts"] == {"1h": -1, "24h": 2, "7d": 2, "30d": 2, "all": 102}
    assert answer["weights_millionths"]["24h"] == 1_499_998
    assert answer["deltas"]["all"] == 3
    assert answer["velocity_per_hour"]["24h"] == 2 / 24
    assert answer["first_event"] == "2026-01-21T00:00:00Z"
    assert answer["last_day"]["from"] == "2026-03-02T00:00:00Z"
    assert sum(answer["last_day"]["hours"]) == 2
    assert answer["reach"]["recounted_hours"] == []
    assert answer["reach"]["versions"]["deltas"] == 1


def test_counts_without_a_signal_shows_every_signal_of_the_entity(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = ask(home, capsys, "counts", "item-1", "--namespace", "shop", *AS_OF, "--json")
    assert {name: each["counts"]["24h"] for name, each in json.loads(out)["signals"].items()} == {"buy": 1, "view": 2}
    code, out, _ = ask(home, capsys, "counts", "item-1", "--namespace", "shop", *AS_OF)
    assert code == 0
    assert "buy" in out
    assert "█" in out


def test_counts_for_people_has_the_weight_exactly_and_the_last_day_as_bars(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = ask(home, capsys, "counts", "item-1", "--namespace", "shop", "--signal", "view", *AS_OF)
    assert "1.499998" in out
    assert "··········█············−" in out


def test_counts_as_of_now_is_as_of_the_running_minute(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = ask(home, capsys, "counts", "item-1", "--namespace", "shop", "--signal", "view", "--json")
    assert json.loads(out)["as_of"].endswith(":00Z")


def test_counts_between_minutes_is_refused_with_the_two_nearest(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    moment = ("--as-of", "2026-03-02T10:00:30")
    code, out, error = ask(home, capsys, "counts", "item-1", "--namespace", "shop", *moment)
    assert (code, out) == (1, "")
    assert "2026-03-02T10:00:00Z or 2026-03-02T10:01:00Z" in error.replace("\n", " ")
    assert ask(home, capsys, "counts", "item-1", "--namespace", "shop", "--as-of", "noon")[0] == 2


def test_counts_of_nothing_are_zeros_and_a_word_that_helps(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("counts", "item-1", "--namespace", "shop", "--signal", "veiw", *AS_OF, "--json")
    code, out, error = ask(home, capsys, *asked)
    assert code == 0
    assert set(json.loads(out)["counts"].values()) == {0}
    assert "It has buy, view." in error
    code, out, error = ask(home, capsys, "counts", "nobody", "--namespace", "shop", *AS_OF, "--json")
    assert code == 0
    assert json.loads(out)["signals"] == {}
    assert "Is the name right" in error


def test_counts_of_an_unknown_namespace_is_an_error(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = ask(home, capsys, "counts", "item-1", "--namespace", "shoop", *AS_OF)
    assert (code, out) == (1, "")
    assert "no namespace 'shoop'. Known here: shop." in error


def test_counts_need_neither_spark_nor_the_orchestrator_nor_pandas(home: Home) -> None:
    arguments = ["counts", "item-1", "--namespace", "shop", "--home", str(home.root), "--json"]
    code = (
        "import sys\nfrom orchestration.cli.app import main\n"
        f"main({arguments!r}, is_own_process=True)\n"
        f"print('loaded', *[name for name in {HEAVY!r} if sys.modules.get(name)])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "loaded", done.stderr


def test_a_sparkline_has_eight_heights() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7, 8]) == "·▁▂▃▄▅▆▇█"
    assert sparkline([-5, 0, 10**12]) == "−·█"


def test_r5_retain_says_what_is_gone_and_what_may_go(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(home, capsys, "retain", "--json")
    assert code == 0
    assert json.loads(out)["gone_before"] == {}
    assert set(json.loads(out)["may_go_before"]) == {"minutes", "hours", "days"}
    code, out, _ = ask(home, capsys, "retain", "--minutes-before", "2026-02-01", "--dry-run", "--json")
    assert json.loads(out)["dropped"][0]["partitions"] == 1
    assert not json.loads(out)["is_done"]
    code, _, error = ask(home, capsys, "retain", "--minutes-before", "2026-02-01T00:30")
    assert code == 1
    assert "whole hours" in error
