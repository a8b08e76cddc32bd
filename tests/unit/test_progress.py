"""What a long command says while it works: a bar with an end on a terminal, a line for each step anywhere else."""

import pytest

from assets.tables import TABLES
from orchestration.cli.work import EVERYTHING, Reached, watched
from orchestration.materialize import PARTITIONED_ASSETS
from orchestration.runs import Step


def test_without_a_terminal_every_step_is_a_line_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    with watched("draining", EVERYTHING) as watch:
        assert capsys.readouterr().err == "draining: starting\n"
        watch(Step("hourly_counts", False, ("2026-03-02-10:00",)))
        assert capsys.readouterr().err == "draining: computing hourly_counts (1)\n"
        watch(Step("hourly_counts", True, ("2026-03-02-10:00",)))
        assert capsys.readouterr().err == "draining: checking hourly_counts (1)\n"


def test_the_bar_of_a_drain_ends_with_the_last_table_and_never_goes_back() -> None:
    reached = Reached(EVERYTHING)
    order = [*PARTITIONED_ASSETS, "vectors", "vector_index"]
    steps = [reached.by(Step(name, is_check, ())) for name in order for is_check in (False, True)]
    total = 2 * len(EVERYTHING)
    assert {each for _, each in steps} == {total}
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})
    assert steps[-1] == (total - 1, total)
    again = reached.by(Step(PARTITIONED_ASSETS[0], False, ()))
    assert again == steps[-1], "hours of sessions may be reached again"


def test_every_table_has_its_place_in_the_bar() -> None:
    assert set(TABLES) <= set(EVERYTHING)


def test_a_request_without_an_order_has_no_end_that_could_be_wrong() -> None:
    assert Reached(()).by(Step("vectors", False, ())) == (0, None)
