"""`bench growth`: what a home of a year costs beside one of a day.

Belongs here: which questions are asked of both homes, and what their figures are held to. Each question is asked in a
process of its own, and sides take turns. Opening and looking are asked for once before they are measured, as in a
process that goes on; `status` is the whole command, as a user runs it. The results are the same when every answer is
what the home was made with.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.growth_data import Age, make_home
from benchmarks.growth_sides import ACTS
from benchmarks.harness import Result, ask, options_of, say, show

YEAR_HOURS = 365 * 24
# As fast as the year's segments came.
DAY = Age(hours=24, segments=274, producers=548, plans=27)
TARGET = 1.5
SMALL = "a day"


def main(json_output: bool, age: Age, turns: int) -> int:
    """Make both homes, ask both, compare; gives the exit code."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        homes = {name: Path(scratch) / name for name in ("small", "large")}
        expected = {}
        for name, size in (("small", DAY), ("large", age)):
            begun = time.monotonic()
            expected[name] = make_home(homes[name], size)
            say(f"{name}: {size}, made in {time.monotonic() - begun:.0f} s")
        results = [result for act in ACTS for result in _compare(act, homes, expected, turns)]
    return show(results, is_json=json_output)


def _compare(act: str, homes: dict[str, Path], expected: dict[str, Any], turns: int) -> Iterator[Result]:
    found: dict[str, list[Any]] = {name: [] for name in homes}
    for turn in range(turns):
        for name in list(homes)[:: 1 if turn % 2 else -1]:
            found[name].append(ask("growth_sides", act, homes[name]))
            say(f"{act} of {name}: {found[name][-1]}")
    is_equal = all(
        each["answer"] == {key: expected[name][key] for key in each["answer"]} for name in homes for each in found[name]
    )
    for figure, unit, scale in (("cpu_s", "CPU-s", 1.0), ("peak_bytes", "MB", 1e-6)):
        small, large = (min(each[figure] for each in found[name]) * scale for name in ("small", "large"))
        ratio = large / small
        name = act if figure == "cpu_s" else f"memory of {act}"
        yield Result(name, large, small, SMALL, unit, ratio, TARGET, ratio <= TARGET, is_equal)


if __name__ == "__main__":
    options = options_of(
        "growth",
        __doc__,
        segments=(int, 100_000, "of the large home (default: 100,000)"),
        producers=(int, 200_000, "of the large home (default: 200,000)"),
        plans=(int, 10_000, "of the large home (default: 10,000)"),
        turns=(int, 3, "how often each is asked (default: 3)"),
    )
    large = Age(YEAR_HOURS, options.segments, options.producers, options.plans)
    sys.exit(main(options.json, large, options.turns))
