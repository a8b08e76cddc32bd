"""A sensor that finds nothing looks again when something has changed; its time is passed in."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from orchestration.instance import EVENTS_FILE, SETTINGS_FILE, ensure_instance, open_instance
from orchestration.news import LIMIT_VARIABLE, WHILE_VARIABLE, Evaluation, files_of, look_until, patience_s
from tests.support.batch import FORGETFUL, send
from tests.support.live import TEN_O_CLOCK, signal
from tests.support.orchestrator import record_of, tell
from tidemark.storage.home import Home


class Time:
    """A clock that moves when somebody waits, and things that happen then."""

    def __init__(self, happens: dict[float, Callable[[], None]] | None = None) -> None:
        self.now_s, self._happens = 0.0, dict(happens or {})

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        for due in [each for each in self._happens if each <= self.now_s]:
            self._happens.pop(due)()

    def clock(self) -> float:
        return self.now_s


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "waiting"
    file.touch()
    monkeypatch.setenv(WHILE_VARIABLE, str(file))
    return file


def looks(time: Time, answers: list[int], files: list[int], patience_s: float = 100.0) -> int:
    return look_until(
        lambda: answers[-1],
        bool,
        lambda: files[-1],
        patience_s=patience_s,
        pause=time.pause,
        clock=time.clock,
    )


def test_what_is_there_is_answered_at_once(waits: Path) -> None:
    time = Time()
    assert looks(time, [1], [0]) == 1
    assert time.now_s == 0.0


def test_news_is_found_within_a_second(waits: Path) -> None:
    answers, files = [0], [0]

    def happens() -> None:
        answers.append(7)
        files.append(1)

    time = Time({30.0: happens})
    assert looks(time, answers, files) == 7
    assert 30.0 <= time.now_s < 31.0


def test_without_a_change_nobody_looks_again_until_patience_is_over(waits: Path) -> None:
    answers, time = [0], Time()
    time = Time({30.0: lambda: answers.append(7)})
    assert looks(time, answers, [0], patience_s=50.0) == 0
    assert 50.0 <= time.now_s < 51.0


def test_a_change_that_is_nothing_for_this_sensor_is_not_an_answer(waits: Path) -> None:
    files = [0]
    time = Time({10.0: lambda: files.append(1)})
    assert looks(time, [0], files, patience_s=20.0) == 0
    assert time.now_s >= 20.0


def test_waiting_ends_with_whoever_lets_ticks_wait(waits: Path) -> None:
    time = Time({5.0: waits.unlink})
    assert looks(time, [0], [0]) == 0
    assert 5.0 <= time.now_s < 6.0


def test_where_no_tick_may_wait_each_is_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WHILE_VARIABLE, raising=False)
    time = Time()
    assert looks(time, [0], [0]) == 0
    assert time.now_s == 0.0


def test_an_evaluation_that_found_nothing_waits_for_a_change_or_for_the_tenth_minute(waits: Path) -> None:
    evaluation, files, found = Evaluation(), [0], [0]

    def evaluate(time: Time, now_s: float = 0.0) -> int:
        return evaluation.after_news(
            lambda: found[-1],
            bool,
            lambda: files[-1],
            patience_s=5_000.0,
            pause=time.pause,
            clock=time.clock,
            now=lambda: now_s + time.now_s,
        )

    first, second, third, fourth = Time(), Time({40.0: lambda: files.append(1)}), Time(), Time()
    assert (evaluate(first), first.now_s) == (0, 0.0), "the first one has nothing to compare with"
    assert evaluate(second) == 0
    assert 40.0 <= second.now_s < 41.0
    assert evaluate(third, now_s=540.0) == 0
    assert 60.0 <= third.now_s < 63.0, "hours begin and failed runs are tried again without any file that changes"
    found.append(3)
    files.append(2)
    assert (evaluate(fourth), fourth.now_s) == (3, 0.0)
    again = Time()
    assert (evaluate(again), again.now_s) == (3, 0.0), "what was requested may not be all"


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_sealed_segment_a_commit_and_an_event_are_news(tmp_path: Path, is_elsewhere: bool) -> None:
    home = Home(tmp_path / "home").create(FORGETFUL)
    if is_elsewhere:
        settings(home, {"storage": {"sqlite": {"base_dir": str(tmp_path / "elsewhere")}}})
    with open_instance(home) as instance:
        files = files_of(home, instance)
        seen = [files()]
        assert files() == seen[-1]
        send(home, [signal("one", at=TEN_O_CLOCK)])
        seen.append(files())
        log = home.lake / "deltas" / "_delta_log"
        log.mkdir(parents=True)
        seen.append(files())
        (log / "00000000000000000000.json").touch()
        os.utime(log, (1, 1))  # as later as any clock can tell
        seen.append(files())
        tell(instance, record_of("deltas", "2026-03-02-10:00"))
        seen.append(files())
    assert len(set(seen)) == len(seen)


def test_where_no_file_says_that_a_run_has_ended_no_tick_waits(
    tmp_path: Path, waits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "360")
    home = Home(tmp_path / "home").create()
    with open_instance(home) as instance:
        assert patience_s(instance) == 300.0
        sensors = instance.get_sensor_settings()
    with dg.DagsterInstance.ephemeral() as instance:
        monkeypatch.setattr(instance, "get_sensor_settings", lambda: sensors)
        assert patience_s(instance) == 0.0


def settings(home: Home, more: dict[str, Any]) -> None:
    file = ensure_instance(home) / SETTINGS_FILE
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **more}))


def test_a_look_at_the_orchestrators_events_is_no_news_for_others(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    with open_instance(home) as instance:
        tell(instance, record_of("deltas", "2026-03-02-10:00"))
        files = files_of(home, instance)
    before = files()
    with closing(sqlite3.connect(home.dagster / EVENTS_FILE)) as looking:
        looking.execute("SELECT count(*) FROM event_logs").fetchall()
        assert (home.dagster / f"{EVENTS_FILE}-wal").exists()
        assert files() == before
    assert files() == before
