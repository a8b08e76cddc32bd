"""`./tidemark clock` shows a log that is ahead and resets it; what cannot be undone is not done in doubt (C15)."""

import json
import signal as signals
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli.app import main
from orchestration.compact import Wanted, compact
from orchestration.retain import retain
from tests.support.batch import run
from tests.support.live import TEN_O_CLOCK, HandClock, new_home, open_platform, sealed_rows, signal
from tidemark.counts.retention import RetentionError, gone_before
from tidemark.event_time.clock import boot_clock
from tidemark.model.shard_errors import LogDamageError
from tidemark.model.timegrid import DAY_US, HOUR_US, SECOND_US, WEEK_US, floor_to
from tidemark.observe.status import read_cut, read_raised
from tidemark.shard_state.clock_reset import ClockDoubtError, read_resets, read_times, record_reset, refuse_doubtful
from tidemark.storage.failpoints import FAILPOINTS
from tidemark.storage.home import Home
from tidemark.tables.table_watermarks import TableWatermark, TableWatermarkFile
from tidemark.tables.tiers import Tier

YEAR_US = 365 * DAY_US


def wall_us() -> int:
    return time.time_ns() // 1_000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A process that started a year ahead wrote to it, and a table was made from that."""
    home, ahead = new_home(tmp_path / "home"), wall_us() + YEAR_US
    with open_platform(home, HandClock(ahead)) as platform:
        platform.producer("web").write([signal("wrong", at=ahead)]).wait()
    TableWatermarkFile(home.plans, "deltas").advance([TableWatermark(ahead, "shard 0", ahead)])
    return home


Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def ask(home: Home, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*options: str) -> tuple[int, dict[str, Any]]:
        code = main(["clock", "--home", str(home.root), *options, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return asked


def test_it_says_what_is_ahead_and_a_reset_brings_all_of_it_back(ask: Ask) -> None:
    code, said = ask()
    assert code == 1
    assert "./tidemark clock --reset" in said["advice"][0]
    assert said["shards"][0]["received"] > said["now"]
    assert said["tables"]["deltas"] > said["now"]
    code, said = ask("--reset")
    assert (code, said["advice"], len(said["resets"])) == (0, [], 1)
    assert said["shards"][0]["received"] <= said["now"]
    assert all(each <= said["now"] for each in (*said["shards"][0]["watermarks"].values(), *said["tables"].values()))
    assert ask()[0] == 0


def test_people_get_a_table_and_a_sentence(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clock", "--home", str(home.root)]) == 1
    said = "".join(capsys.readouterr())
    assert "last write received" in said
    assert "The log of shard 0 is ahead of the clock: writes are refused." in " ".join(said.split())
    assert main(["clock", "--home", str(home.root), "--reset"]) == 0
    assert "The clock and the log agree." in " ".join("".join(capsys.readouterr()).split())


def test_without_a_home_there_is_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clock", "--home", str(tmp_path / "none"), "--reset"]) == 1
    assert "There is no home" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "none").exists()


def test_a_writer_is_shown_with_its_own_clock_and_no_reset_happens_under_it(
    home: Home, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_platform(home, HandClock(wall_us() + YEAR_US)) as platform:
        platform.producer("web").write([signal("more", at=wall_us())]).wait()
        wait_for_live(home)
        code, said = ask()
        assert code == 1
        assert said["shards"][0]["writer_clock"] > said["now"]
        assert "The clock leapt while shard 0 ran" in said["advice"][0]
        assert main(["clock", "--home", str(home.root), "--reset"]) == 1
        assert "writer.lock" in capsys.readouterr().err
    assert read_resets(home) == []


def test_times_are_read_from_what_is_sealed_and_what_is_not_and_a_recorded_reset_holds_at_once(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path / "home", "shards = 2\n"), HandClock(TEN_O_CLOCK + YEAR_US)
    with open_platform(home, clock) as platform:
        platform.producer("web").write([signal("wrong", at=clock.now_us, entity="e1")]).wait()
        assert {each.received_us for each in read_times(home)} == {0, clock.now_us}
    times = read_times(home)
    assert {each.received_us for each in times} == {0, clock.now_us}
    assert max(each.latest_us for each in times) == clock.now_us
    record_reset(home, TEN_O_CLOCK)
    assert {each.received_us for each in read_times(home)} == {0, TEN_O_CLOCK}
    with open_platform(home) as platform:
        assert {each.received_us for each in read_times(home)} == {0, TEN_O_CLOCK}
        clock.now_us = TEN_O_CLOCK + HOUR_US
    with open_platform(home, clock) as platform:
        platform.producer("web").write([signal("right", at=clock.now_us, entity="e1")]).wait()
        assert {each.received_us for each in read_times(home)} == {0, clock.now_us}


def test_a_damaged_file_of_resets_is_said_to_be_so(home: Home) -> None:
    (home.root / "log" / "clock.json").write_bytes(b"{}")
    with pytest.raises(LogDamageError, match=r"clock\.json is damaged"):
        open_platform(home)


@pytest.mark.parametrize("step", [name for name in FAILPOINTS if name.startswith("clock.")])
def test_a_reset_that_was_killed_is_in_force_and_the_next_opening_finishes_it(home: Home, step: str) -> None:
    assert run(home, "clock", step, ["--reset"])[0] == -signals.SIGKILL
    assert len(read_resets(home)) == 1
    assert read_times(home)[0].latest_us <= wall_us()
    now_us = wall_us()
    with open_platform(home, HandClock(now_us)) as platform:
        assert platform.producer("web").write([signal("right", at=now_us)]).wait().accepted == 1
    assert [row["delta_id"] for row in sealed_rows(home)] == ["wrong", "right"]
    # The tables' own watermarks were not reached: that is shown, and a second reset does it.
    code, answer = run(home, "clock")
    assert (code, len(json.loads(answer)["advice"])) == (1, 1)
    assert "The watermark of deltas is ahead" in json.loads(answer)["advice"][0]
    assert run(home, "clock", options=["--reset"])[0] == 0


def test_sending_to_a_log_that_is_ahead_ends_with_a_sentence(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "day.jsonl"
    file.write_text(json.dumps(signal("d2")))
    assert main(["send", str(file), "--home", str(home.root)]) == 1
    assert "./tidemark clock" in " ".join(capsys.readouterr().err.split())
    assert main(["clock", "--home", str(home.root), "--reset"]) == 0
    assert main(["send", str(file), "--home", str(home.root)]) == 0


# What cannot be undone.


@pytest.fixture
def written(tmp_path: Path) -> Home:
    home = new_home(tmp_path / "home", '[counts]\nhalf_lives = ["1h"]\n')
    with open_platform(home) as platform:
        platform.producer("web").write([signal("x")]).wait()
    return home


def test_a_clock_long_after_the_last_write_needs_somebody_to_vouch_for_it(written: Home, tmp_path: Path) -> None:
    refuse_doubtful(written, TEN_O_CLOCK + HOUR_US)
    refuse_doubtful(written, TEN_O_CLOCK - YEAR_US)
    with pytest.raises(ClockDoubtError, match="--clock-is-right"):
        refuse_doubtful(written, TEN_O_CLOCK + YEAR_US)
    refuse_doubtful(new_home(tmp_path / "new"), TEN_O_CLOCK + YEAR_US)


def test_a_clock_ahead_of_a_running_writers_is_wrong_however_long_that_one_was_silent(written: Home) -> None:
    with open_platform(written) as platform:
        platform.producer("web").write([signal("y")]).wait()
        wait_for_live(written)
        with pytest.raises(ClockDoubtError, match="the process that writes shard 0"):
            refuse_doubtful(written, TEN_O_CLOCK + HOUR_US)
        # The writer has shown itself once, an hour ago by the boot clock: its own clock is an hour further, too.
        refuse_doubtful(written, TEN_O_CLOCK + HOUR_US, lambda: boot_clock() + HOUR_US - 10 * SECOND_US)


def test_a_removal_by_a_clock_that_leapt_is_refused_before_anything_is_cut(written: Home) -> None:
    with pytest.raises(ClockDoubtError, match="nothing was changed"):
        compact(written, Wanted(is_removing=True), clock=lambda: TEN_O_CLOCK + YEAR_US)
    assert read_cut(written) is None


def test_a_retention_is_refused_only_where_the_leap_decides(written: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def stop(_: Home, earliest_us: int, __: object) -> None:
        begun.append(earliest_us)
        raise InterruptedError

    monkeypatch.setattr("orchestration.retain.raise_earliest", stop)
    ahead, old = TEN_O_CLOCK + YEAR_US, floor_to(TEN_O_CLOCK, WEEK_US) - YEAR_US
    young = {Tier.MINUTE: floor_to(TEN_O_CLOCK, HOUR_US)}
    with pytest.raises(RetentionError):
        retain(written, young, clock=lambda: TEN_O_CLOCK)
    with pytest.raises(ClockDoubtError, match="--clock-is-right"):
        retain(written, young, clock=lambda: ahead)
    assert not begun
    assert read_raised(written) is None
    assert gone_before(written) == {}
    with pytest.raises(InterruptedError):
        retain(written, young, clock=lambda: ahead, is_clock_right=True)
    with pytest.raises(InterruptedError):
        retain(written, {Tier.MINUTE: old}, clock=lambda: ahead)  # as old by the log's own time
    assert begun == [young[Tier.MINUTE], old]


def wait_for_live(home: Home) -> None:
    deadline = time.monotonic() + 30
    while not (home.log(0) / "live.json").exists():
        assert time.monotonic() < deadline, "the writer does not show itself"
        time.sleep(0.01)
