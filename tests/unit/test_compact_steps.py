"""The steps of a compaction that removes (K4, K5): no cut without a purpose, and what stays is told. No JVM."""

import shutil
from pathlib import Path

import pytest

from assets.vectors.compacted import Compacted, KeptBack, Removed
from orchestration import compact as steps
from orchestration.cli.compact import _show, compaction_as_json
from orchestration.compact import Compaction, CompactionError, Wanted, compact
from orchestration.runs import RunOutcome, RunResults
from tests.support.live import TEN_O_CLOCK, HandClock, open_platform, vector
from tidemark.model.timegrid import DAY_US, HOUR_US
from tidemark.observe.status import read_cut, read_status
from tidemark.storage.home import Home

NOW = TEN_O_CLOCK + DAY_US + HOUR_US // 2
REMOVING = Wanted(horizon_us=0, is_removing=True)
FAILED = RunResults((RunOutcome("run", ("drain",), {}, (), 0.0, "it broke"),))


class Runs:
    """Stands for the runs that need a JVM: what each would find, and in which order they were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.drained = RunResults()
        self.going, self.kept_back = 0, KeptBack(happened_since=1, received_since=2, in_no_base=3)

    def drain(self, home: Home, **_options: object) -> RunResults:
        self.asked.append("drain")
        assert not any(shard.log_bytes for shard in read_status(home)), "nothing waits in the log to be sealed"
        return self.drained

    def foresee(self, _home: Home, _cut_us: int) -> tuple[int, KeptBack]:
        self.asked.append("foresee")
        return self.going, self.kept_back

    def checkpoints(self, _home: Home, _wanted: Wanted, cut_us: int | None, *_: object) -> tuple[RunResults, Compacted]:
        self.asked.append("checkpoints" if cut_us is None else "bases")
        return RunResults(), Compacted(checkpoints=1)

    def remove(self, _home: Home) -> Removed:
        self.asked.append("remove")
        return Removed(payloads=self.going, hours=1, kept_back=self.kept_back)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    for name, instead in (
        ("drain", runs.drain),
        ("_foresee", runs.foresee),
        ("_checkpoints", runs.checkpoints),
        ("_remove", runs.remove),
        ("_refuse_undrained", lambda _home: None),
        ("_refuse_wrong", lambda _home, _cut_us: None),
    ):
        monkeypatch.setattr(steps, name, instead)
    return runs


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home").create()
    with open_platform(home, HandClock(NOW)) as platform:
        platform.producer("p").write([vector("d1", "create", values=[1.0], at=TEN_O_CLOCK)]).wait()
    return home


def is_taken(home: Home, at: int) -> bool:
    """Whether a change of a vector is taken that happened then."""
    with open_platform(home, HandClock(NOW)) as platform:
        answer = platform.producer("late").write([vector(f"at-{at}", "create", values=[1.0], at=at)]).wait()
    return bool(answer.accepted)


def test_k4_a_cut_that_would_remove_nothing_is_not_made(home: Home, runs: Runs) -> None:
    done = compact(home, REMOVING, clock=HandClock(NOW))
    assert runs.asked == ["drain", "foresee", "checkpoints"]
    assert read_cut(home) is None
    assert is_taken(home, TEN_O_CLOCK), "older changes are still taken"
    assert done.is_done
    assert (done.cut_us, done.considered_us) == (None, TEN_O_CLOCK + DAY_US)
    assert done.removed == Removed(kept_back=runs.kept_back)


def test_k4_a_cut_by_which_something_goes_is_in_the_log_before_anything_is_removed(home: Home, runs: Runs) -> None:
    runs.going = 1
    done = compact(home, REMOVING, clock=HandClock(NOW))
    assert runs.asked == ["drain", "foresee", "drain", "bases", "remove"]
    cut = read_cut(home)
    assert cut is not None
    assert cut.cut_us == done.cut_us == done.considered_us == TEN_O_CLOCK + DAY_US
    assert not is_taken(home, TEN_O_CLOCK)


def test_a_program_that_has_the_home_open_is_not_asked_for_a_cut_that_would_remove_nothing(
    home: Home, runs: Runs
) -> None:
    cuts: list[int] = []
    with open_platform(home, HandClock(NOW)):
        compact(home, REMOVING, clock=HandClock(NOW), cut=cuts.append)
        assert cuts == []
        runs.going = 1
        compact(home, REMOVING, clock=HandClock(NOW), cut=cuts.append)
    assert cuts == [TEN_O_CLOCK + DAY_US]


def test_what_a_killed_process_left_in_the_log_is_sealed_before_it_is_asked_what_would_go(
    home: Home, runs: Runs, tmp_path: Path
) -> None:
    with open_platform(home, HandClock(NOW)) as platform:
        platform.producer("q").write([vector("d2", "create", values=[1.0], at=TEN_O_CLOCK)]).wait()
        killed = Home(shutil.copytree(home.root, tmp_path / "killed"))
    assert any(shard.log_bytes for shard in read_status(killed))
    compact(killed, REMOVING, clock=HandClock(NOW))
    assert runs.asked == ["drain", "foresee", "checkpoints"]


def test_o4_a_failed_drain_leads_to_no_cut(home: Home, runs: Runs) -> None:
    runs.drained, runs.going = FAILED, 1
    done = compact(home, REMOVING, clock=HandClock(NOW))
    assert not done.is_done
    assert read_cut(home) is None


def test_o4_hours_that_were_found_wrong_lead_to_no_cut(home: Home, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_home: Home, _cut_us: int) -> None:
        raise CompactionError("an hour is wrong")

    runs.going = 1
    monkeypatch.setattr(steps, "_refuse_wrong", refuse)
    with pytest.raises(CompactionError):
        compact(home, REMOVING, clock=HandClock(NOW))
    assert read_cut(home) is None


@pytest.mark.parametrize("cut_us", [None, TEN_O_CLOCK])
def test_k5_what_is_kept_back_is_told_with_its_condition(
    cut_us: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    kept_back = KeptBack(happened_since=7, received_since=1200)
    done = Compaction(cut_us, TEN_O_CLOCK, removed=Removed(payloads=5, hours=2, kept_back=kept_back))
    _show(done)
    told = " ".join("".join(capsys.readouterr()).split())
    if cut_us is None:
        assert "No payload was removed, and no cut was made: nothing would go with one at 2026-03-02T10:00" in told
    else:
        assert "5 payload(s) removed from 2 hour(s)" in told
    assert "7 payload(s) stay: they happened at 2026-03-02T10:00" in told
    assert "1,200 payload(s) stay: they happened before 2026-03-02T10:00" in told
    assert "wait for their parent" not in told, "there are none"
    answer = compaction_as_json(done)
    assert answer["cut"] == (None if cut_us is None else answer["considered"])
    assert answer["removed"]["kept_back"] == {"happened_since": 7, "received_since": 1200, "in_no_base": 0}
