"""`top`: from tables and log, without a JVM; what cannot be answered is said."""

import json
from pathlib import Path

import pytest

from orchestration.cli.app import main
from tests.support.live import TEN_O_CLOCK, new_home, open_platform, signal
from tests.support.small_lake import Event, SmallLake
from tidemark.model.timegrid import DAY_US, HOUR_US


def top(home: Path, *arguments: str) -> int:
    return main(["top", "--home", str(home), "--namespace", "shop", "--signal", "view", *arguments])


def test_top_ranks_what_the_tables_have_and_what_the_log_has_beyond_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = new_home(tmp_path / "home")
    lake = SmallLake(home)
    lake.send([Event(TEN_O_CLOCK - HOUR_US, "b", count=2), Event(TEN_O_CLOCK - 2 * DAY_US, "c", count=9)])
    lake.roll_up_everything()
    with open_platform(home) as platform:
        platform.producer("web").write([signal("d", at=TEN_O_CLOCK - 1, entity="a", count=2)]).wait()
        assert top(home.root, "--as-of", "2026-03-02T10:00", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["top"] == [{"entity": "a", "count": 2}, {"entity": "b", "count": 2}]
    assert (answer["window"], answer["as_of"]) == ("24h", "2026-03-02T10:00:00Z")
    assert answer["reach"]["log"] == {"0": 1}
    assert top(home.root, "--as-of", "2026-03-02T10:00", "--window", "7d", "-n", "1") == 0
    shown = capsys.readouterr().out
    assert "c" in shown
    assert "9" in shown


def test_top_of_a_namespace_that_is_none_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = new_home(tmp_path / "home", "[namespaces.other]\n")
    assert top(home.root) == 1
    assert "There is no namespace 'shop'" in capsys.readouterr().err.replace("\n", " ")


def test_a_moment_between_two_minutes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert top(new_home(tmp_path / "home").root, "--as-of", "2026-03-02T10:00:30") == 1
    assert "10:00:00Z or 2026-03-02T10:01:00Z" in capsys.readouterr().err.replace("\n", " ")
