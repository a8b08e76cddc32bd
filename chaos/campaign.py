"""Many seeds on several processes, and every planted bug until a seed finds it.

Belongs here: how the work is divided, and the results. How they are shown is in `__main__.py`. A seed's result does not
depend on the process that ran it, or on what that process ran before.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from chaos.beside import try_out
from chaos.planted import PLANTED, Planted
from chaos.planted_beside import BESIDE
from chaos.public import stress
from chaos.simulation import Report, simulate

# Seeds in one task of a process: a second's work.
SEEDS_AT_ONCE = 25
# A planted bug that this many seeds do not find counts as missed.
SEEDS_PER_BUG = 3_000
PUBLIC_SEEDS_PER_BUG = 100
# Some of those beside the coordinator are races, which their test loses most of the time.
TRIES_BESIDE = 5
# One seed in this many also runs against the public API: with threads it takes about as long as a hundred others.
PUBLIC_SHARE = 100

Progress = Callable[[int], None]


class Part(NamedTuple):
    """The results of some seeds."""

    seeds: int = 0
    lives: int = 0
    steps: int = 0
    calls: int = 0
    failure: Report | None = None  # of the first seed that failed; no later one was run

    def plus(self, other: "Part") -> "Part":
        """Both together."""
        return Part(
            self.seeds + other.seeds,
            self.lives + other.lives,
            self.steps + other.steps,
            self.calls + other.calls,
            self.failure or other.failure,
        )


class Caught(NamedTuple):
    """The result for one planted bug."""

    bug: str
    rule: str
    what: str
    seed: int | None  # the first that found it
    found: str | None  # the violation
    is_clean: bool  # whether the same seed finds nothing without the bug
    test: str | None = None  # the test that found it, if no seed can

    @property
    def is_caught(self) -> bool:
        """Whether a seed or a test has found it."""
        return self.seed is not None or self.test is not None


def run_seeds(first: int, count: int, jobs: int, progress: Progress = lambda _: None) -> Part:
    """Run seeds in order, up to the first that fails."""
    total = Part()
    starts = range(first, first + count, SEEDS_AT_ONCE)
    pieces = [(start, min(SEEDS_AT_ONCE, first + count - start)) for start in starts]
    with _workers(min(jobs, len(pieces))) as workers:
        for part in workers(_run_piece, pieces):
            total = total.plus(part)
            progress(part.seeds)
            if part.failure is not None:
                break
    return total


def run_planted(first: int, jobs: int, progress: Progress = lambda _: None) -> list[Caught]:
    """Plant every bug in turn, each until a seed finds it; those outside the coordinator are found by a test."""
    found = []
    with _workers(jobs) as workers:
        by_seed = workers(_catch, [(planted.name, first + planted.first_seed) for planted in PLANTED])
        by_test = workers(_catch_beside, range(len(BESIDE)))
        for caught in chain(by_seed, by_test):
            found.append(caught)
            progress(1)
    return found


def _catch_beside(number: int) -> Caught:
    bug = BESIDE[number]
    for _ in range(TRIES_BESIDE):
        tried = try_out(bug)
        if tried.is_caught:
            break
    # The default tier shows that the test passes without the bug.
    return Caught(bug.name, bug.rule, bug.what, None, tried.said, True, bug.test if tried.is_caught else None)


def catch(planted: Planted, first: int = 0, most: int = SEEDS_PER_BUG) -> Caught:
    """Plant one bug until a seed finds it."""
    find = stress if planted.is_public else _violation
    for seed in range(first, first + (most if not planted.is_public else min(most, PUBLIC_SEEDS_PER_BUG))):
        with planted.plant():
            found = find(seed)
        if found is not None:
            return Caught(planted.name, planted.rule, planted.what, seed, found, is_clean=find(seed) is None)
    return Caught(planted.name, planted.rule, planted.what, None, None, is_clean=True)


def _violation(seed: int) -> str | None:
    return simulate(seed).violation


def _run_piece(piece: tuple[int, int]) -> Part:
    total = Part()
    for seed in range(piece[0], sum(piece)):
        report = simulate(seed)
        if report.violation is None and seed % PUBLIC_SHARE == 0 and (found := stress(seed)) is not None:
            report = report._replace(violation=found, rule=found.partition(":")[0])
        is_failure = report.violation is not None
        total = total.plus(Part(1, report.lives, report.steps, report.calls, report if is_failure else None))
        if is_failure:
            break
    return total


def _catch(task: tuple[str, int]) -> Caught:
    name, first = task
    return catch(next(planted for planted in PLANTED if planted.name == name), first)


def use_one_core() -> None:
    """Use one thread for Arrow: with tables of ten rows its threads only disturb each other."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A map over processes that keeps the order; in this process if one is enough."""
    if jobs <= 1:
        yield map
        return
    # A new interpreter each: Arrow has threads, and those do not survive a fork. If one dies, that is an error here,
    # and nothing waits for it.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=use_one_core)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
