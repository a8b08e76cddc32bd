"""`./tidemark chaos`: run seeds or planted bugs, and show the results.

Belongs here: the options and the output. Answers go to standard output, everything else to standard error.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from chaos.campaign import Caught, Part, run_planted, run_seeds
from chaos.planted import PLANTED
from chaos.planted_beside import BESIDE
from tidemark.cli.output import answer_json, console, progress, say, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if no seed broke a rule, and every planted bug was caught."""
    options = _options(arguments)
    started = time.monotonic()
    title = "Planted bugs" if options.planted else "Seeds"
    with progress() as bar:
        task = bar.add_task(title, total=len(PLANTED) + len(BESIDE) if options.planted else options.seeds, note="")
        if options.planted:
            caught = run_planted(options.first_seed, options.jobs, lambda done: bar.advance(task, done))
        else:
            part = run_seeds(options.first_seed, options.seeds, options.jobs, lambda done: bar.advance(task, done))
    seconds = time.monotonic() - started
    if options.planted:
        return _show_caught(caught, seconds, is_json=options.json)
    return _show_part(part, options.first_seed, seconds, is_json=options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tidemark chaos", description=__doc__)
    parser.add_argument("--seeds", type=_positive, default=1_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--jobs", type=_positive, default=2)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _show_part(part: Part, first: int, seconds: float, *, is_json: bool) -> int:
    failure = part.failure
    if is_json:
        answer_json(
            {
                "first_seed": first,
                "seeds": part.seeds,
                "lives": part.lives,
                "steps": part.steps,
                "disk_calls": part.calls,
                "seconds": round(seconds, 1),
                "failure": None if failure is None else _reproduced(failure.seed) | {"violation": failure.violation},
            }
        )
        return 0 if failure is None else 1
    out = console()
    run = f"{part.seeds:,} seeds from {first}, {part.lives:,} lives, {part.calls:,} disk calls"
    if failure is None:
        out.print(f"{run}: nothing found. {part.seeds / seconds:.0f} seeds a second.")
        return 0
    out.print(f"{run}, and seed {failure.seed} breaks a rule.\n")
    for event in failure.events:
        out.print(f"  {event}", soft_wrap=True)
    out.print(f"\n{failure.violation}\n", soft_wrap=True)
    out.print(f"To see it again: {_reproduced(failure.seed)['command']}")
    return 1


def _show_caught(caught: Sequence[Caught], seconds: float, *, is_json: bool) -> int:
    missed = [each.bug for each in caught if not each.is_caught]
    unclean = [each for each in caught if not each.is_clean]
    if is_json:
        answer_json({"planted": [each._asdict() for each in caught], "missed": missed, "seconds": round(seconds, 1)})
    else:
        shown = table(
            "Planted bugs", "bug", "rule", "what is wrong", "caught by seed", "found", numbers=("caught by seed",)
        )
        for each in caught:
            seed = str(each.seed) if each.seed is not None else "its test" if each.is_caught else "missed"
            found = each.test.partition("::")[2] if each.test else each.found or ""
            shown.add_row(each.bug, each.rule, each.what, seed, found[:60])
        console().print(shown)
        say(f"{len(caught) - len(missed)} of {len(caught)} caught in {seconds:.0f} s.")
    for each in unclean:
        say(f"Seed {each.seed} fails without {each.bug}, too: {_reproduced(each.seed or 0)['command']}")
    return 1 if missed or unclean else 0


def _reproduced(seed: int) -> dict[str, object]:
    return {"seed": seed, "command": f"./tidemark chaos --seeds 1 --first-seed {seed}"}


if __name__ == "__main__":
    sys.exit(main())
