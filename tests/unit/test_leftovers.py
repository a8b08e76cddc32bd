"""What killed processes leave, and what nobody asks for any more, goes at the next start of its owner; nothing else."""

import os
from pathlib import Path

import pytest

from orchestration.instance import OUTPUT_KEPT_S, remove_old_output
from orchestration.report import page
from tidemark.model.timegrid import DAY_US
from tidemark.storage.home import Home
from tidemark.tables.lake_files import LEFTOVER_AGE_S, remove_leftovers
from tidemark.vectors.reading.reads import append_reads, read_rates

NOW_S = 1_800_000_000.0
NOW_US = 1_772_445_600_000_000


def aged(path: Path, age_s: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return path


def test_temporary_files_of_killed_commits_go_after_a_day_and_commits_stay(tmp_path: Path) -> None:
    log = tmp_path / "table" / "_delta_log"
    old = LEFTOVER_AGE_S + 1
    gone = [
        aged(log / name, old)
        for name in (".00001.json.7a.tmp", "..00001.json.7a.tmp.crc", "_commit_7a.json.tmp", ".7a.tmp")
    ]
    kept = [aged(log / name, old) for name in ("00000.json", "00000.crc", ".00000.json.crc", "_last_checkpoint")]
    kept += [aged(log / ".00002.json.7b.tmp", 10), aged(tmp_path / "table" / "a.tmp", old)]
    remove_leftovers(tmp_path / "table", now_s=NOW_S)
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept)
    remove_leftovers(tmp_path / "no table", now_s=NOW_S)


def test_days_of_reads_go_when_no_rate_can_need_them(tmp_path: Path) -> None:
    for day in range(5):
        append_reads(tmp_path, {("shop", "v"): 24}, NOW_US + day * DAY_US)
    (tmp_path / "reads" / "notes.txt").touch()
    append_reads(tmp_path, {("shop", "v"): 24}, NOW_US + 5 * DAY_US)
    assert sorted(path.name for path in (tmp_path / "reads").iterdir()) == [
        "2026-03-06.jsonl",
        "2026-03-07.jsonl",
        "notes.txt",
    ]
    assert read_rates(tmp_path, NOW_US + 5 * DAY_US)["reads_per_hour"].to_pylist() == [2.0]


def test_half_a_page_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    dead, alive, other = (
        tmp_path / name for name in (".report.html.999999999.tmp", f".report.html.{os.getppid()}.tmp", ".other.9.tmp")
    )
    for left in (dead, alive, other):
        left.touch()
    page._remove_leftovers(path)
    assert (dead.exists(), alive.exists(), other.exists()) == (False, True, True)


@pytest.mark.parametrize(("age_s", "stays"), [(OUTPUT_KEPT_S + 60, False), (OUTPUT_KEPT_S - 60, True)])
def test_the_output_of_old_runs_goes_and_the_rest_of_the_storage_stays(
    tmp_path: Path, age_s: float, stays: bool
) -> None:
    home = Home(tmp_path / "home").create()
    printed = aged(home.dagster / "storage" / "run" / "compute_logs" / "step.out", 0).parent
    os.utime(printed, (NOW_S - age_s, NOW_S - age_s))
    result = aged(home.dagster / "storage" / "run" / "result", age_s)
    remove_old_output(home, now_s=NOW_S)
    assert printed.exists() == stays
    assert result.exists()
