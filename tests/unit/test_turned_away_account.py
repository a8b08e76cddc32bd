"""The account of a home with a door adds up, also after a kill, and so do its report and its suites (A3)."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from expectations import evidence
from orchestration.cli.app import main
from orchestration.report.page import write_report
from resources.lake import Lake
from tests.support.live import TEN_O_CLOCK, HandClock, crashed_copy, new_home, open_platform, signal
from tidemark import Platform
from tidemark.log.control import Control, Lost, TurnedAway, decode_controls, encode_controls
from tidemark.log.manifest import Entry, Manifest, Totals, line_of
from tidemark.model.timegrid import MINUTE_US, SECOND_US
from tidemark.model.turned_away import OTHERS, Tally
from tidemark.observe.account import take_account
from tidemark.observe.sealed_log import Log
from tidemark.observe.turned_away import read_books
from tidemark.shard_state.state import ShardState
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home


def refuse(platform: Platform, clock: HandClock, deltas: int, *, is_last: bool = False) -> None:
    since_us = clock.now_us
    clock.advance(1)
    tally = Tally({"rate": {"web": deltas, "app": 1}}, {"rate": ["d1"]})
    platform.turn_away(tally, since_us, clock.now_us, is_last=is_last)


def test_a3_the_account_adds_up_and_says_why_and_who(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, clock = new_home(tmp_path / "home", "shards = 2\n"), HandClock()
    with open_platform(home, clock) as platform:
        platform.begin_counting()
        producer = platform.producer("web")
        producer.write([signal("d1"), signal("d1"), b"{"]).wait()
        refuse(platform, clock, 40)
        producer.write([signal("d2")]).wait()
        refuse(platform, clock, 60, is_last=True)
    assert main(["account", "--json", "--home", str(home.root)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["account"].pop("received") == sum(found["account"].values()) == 4 + 102
    assert found["account"]["turned_away"] == 102
    assert found["turned_away"] == {
        "reasons": {"rate": 102},
        "producers": {"web": 100, "app": 2},
        "ids": {"rate": ["d1", "d1"]},
        "unknown": [],
    }
    assert main(["account", "--home", str(home.root)]) == 0
    said = capsys.readouterr().out
    assert "turned away" in said
    assert "from web" in said


def test_a3_where_nothing_was_turned_away_the_account_says_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        platform.producer("web").write([signal("d1")]).wait()
    assert main(["account", "--home", str(home.root)]) == 0
    said = capsys.readouterr().out
    assert "turned" not in said
    assert "UNKNOWN" not in said


def test_a3_after_a_kill_the_account_names_the_time_before_and_after_the_next_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, clock = new_home(tmp_path / "home"), HandClock()
    with open_platform(home, clock) as platform:
        platform.begin_counting()
        refuse(platform, clock, 9)
        platform.producer("web").write([signal("d1")]).wait()
        refuse(platform, clock, 5)
        assert take_account(home).outcomes.turned_away == 10, "what the log has, and no more, while it runs"
        assert take_account(home).unknown == []
        killed = crashed_copy(home, tmp_path / "killed")
        (killed.log(0) / "live.json").unlink(missing_ok=True)
    counted_to_us = TEN_O_CLOCK + SECOND_US
    taken = take_account(killed)
    assert (taken.outcomes.turned_away, taken.unknown) == (10, [(counted_to_us, None)])
    assert main(["account", "--home", str(killed.root)]) == 0
    assert (
        "UNKNOWN: a door was open when its process ended; what it turned away after 2026-03-02T10:00:01Z was not"
        in (" ".join(capsys.readouterr().out.split()))
    )
    clock.now_us = TEN_O_CLOCK + MINUTE_US
    with open_platform(killed, clock):
        pass
    taken = take_account(killed)
    assert taken.outcomes.turned_away == 10
    assert taken.unknown == [(counted_to_us, TEN_O_CLOCK + MINUTE_US)]
    assert main(["account", "--json", "--home", str(killed.root)]) == 0
    unknown = json.loads(capsys.readouterr().out)["turned_away"]["unknown"]
    assert unknown == [["2026-03-02T10:00:01Z", "2026-03-02T10:01:00Z"]]


def test_a3_before_a_door_opens_the_log_says_that_it_counts(tmp_path: Path) -> None:
    """Else a kill in the first minute would leave no trace of what was turned away."""
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        platform.begin_counting()
        assert read_books(RealDisk(), home.log(0), home.segments(0)).counted_to_us == TEN_O_CLOCK


def test_a3_homes_messages_and_lines_from_before_are_read_as_ever(tmp_path: Path) -> None:
    assert msgspec.json.decode(b'{"next_file":2}', type=ShardState).books.counted_to_us is None
    assert msgspec.json.decode(b'{"rows":3}', type=Totals).turned_away == Tally()
    messages: list[Control] = [Lost(1, 2), TurnedAway(Tally({"lag": {"p": 3}}, {"lag": ["x"]}, [(1, 2)]), 5, 6)]
    assert decode_controls(memoryview(encode_controls(messages))) == messages
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        platform.producer("web").write([signal("d1")]).wait()
    [path] = home.segments(0).glob("manifest-*.jsonl")
    line = json.loads(path.read_text())
    del line["turned_away"], line["totals"]["turned_away"]
    old = msgspec.convert(line, Entry)
    assert (old.turned_away, old.totals and old.totals.turned_away) == (Tally(), Tally())
    path.write_bytes(msgspec.json.encode(line) + b"\n")  # as an older program has written it
    (home.segments(0) / "head.json").unlink()
    with open_platform(Home(home.root)) as platform:
        platform.producer("web").write([signal("d2")]).wait()
    assert len(list(Manifest(home.segments(0)).all())) == 2
    assert take_account(home).outcomes.received == 2
    assert b'"turned_away":{}' in line_of(old)


def test_a3_the_counts_of_all_shards_are_kept_in_one(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path / "home", "shards = 3\n"), HandClock()
    with open_platform(home, clock) as platform:
        platform.begin_counting()
        refuse(platform, clock, 4, is_last=True)
    found = [read_books(RealDisk(), home.log(shard), home.segments(shard)).tally.deltas for shard in range(3)]
    assert found == [5, 0, 0]
    shutil.rmtree(home.root)


def test_no_producer_can_have_the_name_that_stands_for_others() -> None:
    from tidemark.model.settings import is_name

    assert not is_name(OTHERS)


@pytest.mark.parametrize("durable", [0, 1, 2])
def test_o4_the_suites_see_what_each_line_counts_and_what_the_totals_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: int
) -> None:
    """However many of the segments are added up already."""
    home, clock = new_home(tmp_path / "home"), HandClock()
    with open_platform(home, clock) as platform:
        platform.begin_counting()
        for number in range(3):
            refuse(platform, clock, 10 * number, is_last=number == 2)
            platform.producer("web").write([signal(f"d{number}", at=clock.now_us)]).wait()
            platform.seal()
    monkeypatch.setattr(evidence, "durable_epochs", lambda _home: {0: durable} if durable else {})
    rows = evidence._segments(Lake(home, lambda: None), Log(home))["segments"].to_pylist()  # type: ignore[arg-type, return-value]
    found = [(row["number"], row["turned_away"], row["turned_away_in_all"]) for row in rows]
    apart = {1: (1, 1, 1), 2: (2, 11, 12), 3: (3, 21, 33)}
    together = {0: [], 1: [(1, 1, 1)], 2: [(2, 12, 12)]}[durable]
    assert found == [*together, *(apart[number] for number in range(durable + 1, 4))]


def test_a3_the_report_shows_it_and_the_time_that_nobody_counted(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path / "home"), HandClock()
    with open_platform(home, clock) as platform:
        platform.producer("web").write([signal("d1")]).wait()
    assert "turned away" not in write_report(home, now_us=clock.now_us).read_text()
    with open_platform(home, clock) as platform:
        platform.begin_counting()
        refuse(platform, clock, 1_233)
    page = write_report(home, now_us=clock.now_us).read_text()
    assert "<dt>turned away</dt><dd>1,234<" in page
    assert "What was turned away is not known for some time" in page
