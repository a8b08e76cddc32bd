"""Lives of a shard by seed, on a disk that forgets and fails: no rule is broken, and a broken one would be noticed.

A seed that fails is seen again with `./tidemark chaos --seeds 1 --first-seed SEED`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, product

import pytest

from chaos.__main__ import main
from chaos.campaign import Part, run_planted, run_seeds
from chaos.disks import EVERY_KIND, SYNCS, Fault, Moment, Survival
from chaos.exhaustive import try_out
from chaos.planted import PLANTED
from chaos.planted_beside import BESIDE
from chaos.simulation import simulate
from chaos.watching import Cut

PROCESSES = 2
# Where chance decides what survives, it is asked more than once.
FATES = {Survival.RANDOM: 3, Survival.PREFIX: 2, Survival.SUFFIX: 2}


def assert_nothing_found(part: Part, seeds: int) -> None:
    failure = part.failure
    assert failure is None, "\n".join([f"seed {failure.seed}", *failure.events, failure.violation or ""])
    assert part.seeds == seeds


def test_a_thousand_seeds_break_no_rule() -> None:
    assert_nothing_found(run_seeds(0, 1_000, PROCESSES), 1_000)


@pytest.mark.slow
def test_twenty_thousand_seeds_break_no_rule() -> None:
    assert_nothing_found(run_seeds(1_000, 20_000, PROCESSES), 20_000)


def test_the_same_seed_gives_the_same_events_and_the_same_disk_calls() -> None:
    for seed in range(10):
        once, again = (simulate(seed, is_whole=True) for _ in range(2))
        assert once.events == again.events
        assert once.digest == again.digest
    assert simulate(0).digest != simulate(1).digest


def test_another_process_with_other_hashes_sees_the_same() -> None:
    script = "from chaos.simulation import simulate; print(*(simulate(seed).digest for seed in range(5)))"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [simulate(seed).digest for seed in range(5)]


def test_every_planted_bug_is_caught_and_nothing_is_found_without_it() -> None:
    caught = run_planted(0, PROCESSES)
    assert len(caught) == len(PLANTED) + len(BESIDE) >= 10
    assert [(each.bug, each.found) for each in caught if not each.is_caught] == []
    assert [each.bug for each in caught if not each.is_clean] == []


def test_the_command_says_that_nothing_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--jobs", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["seeds"], answer["failure"]) == (3, None)


def test_the_command_names_the_seed_of_a_failure_and_how_to_see_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    [bug] = [planted for planted in PLANTED if planted.name == "snapshot_after_watermark"]
    with bug.plant():
        assert main(["--seeds", "50", "--jobs", "1", "--json"]) == 1
        failure = json.loads(capsys.readouterr().out)["failure"]
        assert failure["violation"].startswith("C6: ")
        _, *options = failure["command"].split()[1:]
        assert main([*options, "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    assert failure["violation"] in shown
    assert failure["command"] in shown


@pytest.mark.parametrize("wrong", [["--seeds", "0"], ["--jobs", "none"], ["--nonsense"]])
def test_wrong_usage_ends_with_two(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2


def cuts(moments: list[Moment], modes: list[Survival], step: int) -> Iterator[tuple[int, int]]:
    """Cut a small life at every `step`-th call; gives the calls, and how many cases there were."""
    cases = 0
    for nth in count(1, step):
        for moment, mode in product(moments, modes):
            for fate in range(FATES.get(mode, 1)):
                if not try_out(mode, cut=Cut(EVERY_KIND, nth, moment), fate=fate):
                    return
                cases += 1
        yield nth, cases


def test_a_crash_at_every_sixteenth_disk_call_loses_nothing_c7() -> None:
    modes = [Survival.CACHE, Survival.NOTHING, Survival.RANDOM]
    *_, (last, cases) = cuts([Moment.MIDDLE, Moment.AFTER], modes, 16)
    assert last > 100
    assert cases > 75


@pytest.mark.slow
def test_a_crash_at_every_disk_call_in_every_way_loses_nothing_c7() -> None:
    *_, (last, cases) = cuts(list(Moment), list(Survival), 1)
    assert last > 100
    assert cases > 4_000


@pytest.mark.parametrize("mode", [Survival.CACHE, pytest.param(Survival.NOTHING, marks=pytest.mark.slow)])
def test_whichever_sync_fails_first_nothing_is_lost_c7(mode: Survival) -> None:
    failed = 0
    while try_out(mode, plan=[Fault(SYNCS, failed + 1)]):
        failed += 1
    assert failed > 40


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Survival))
def test_whichever_call_fails_first_nothing_is_lost_c7(mode: Survival) -> None:
    failed = 0
    while try_out(mode, plan=[Fault(EVERY_KIND, failed + 1)]):
        failed += 1
    assert failed > 100
