"""`bench freshness`: from the acknowledgement of one delta to its row in every table, and what that costs.

Belongs here: which ways are gone, in which order, and what they are held to. Each way is first gone without any notes,
for its seconds and CPU-seconds (the median of its turns), and then once more while Spark and SQLite write down what
they do, for counts and a breakdown. A turn is right if every partition that it made has passed its check.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.freshness_count import Counted, as_text, count
from benchmarks.freshness_home import Notes, command, copy_of, environment, send, send_base
from benchmarks.freshness_ledger import adopt_orphans
from benchmarks.freshness_peer import peer_turns
from benchmarks.freshness_streams import TOUCHED, stream_turn
from benchmarks.freshness_ways import FreshnessError, Turn, daemon, demo, drain, end_leftovers
from benchmarks.harness import say
from orchestration.demo.feed import SETTINGS_TEXT
from tidemark.model.settings import TEMPLATE
from tidemark.storage.home import Home

PARTS = ("drain", "daemon", "demo", "streams", "peer")
BASE_DELTAS = 3_000
COLD, AGAIN = "first drain", "second drain"
PEER = "Structured Streaming"
# What is wanted, on two quiet cores; jobs and executions are of one delta on any way.
JOBS, EXECUTIONS = 35, 45
IDLE_S = 300.0


@dataclass(frozen=True)
class Figure:
    """A figure and what it is held to."""

    name: str
    value: float
    unit: str
    target: float | None = None  # none: it is reported only
    beside: float | None = None  # what it is divided by, if it is a ratio

    @property
    def is_met(self) -> bool:
        """Whether it is as low as is wanted."""
        return self.target is None or self.value <= self.target


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    parts: tuple[str, ...]
    turns: int
    deltas: int
    demo_deltas: int
    streams: int
    idle_s: float


class Bench:
    """The parts, in a scratch folder; everything that they find is kept."""

    def __init__(self, scratch: Path, options: Options) -> None:
        self._scratch, self._options = scratch, options
        self._number = 0
        self._with_tables: Home | None = None
        self.turns: list[Turn] = []
        self.counted: list[Counted] = []
        self.figures: list[Figure] = []
        self.failed: list[str] = []  # parts that came to no end

    def parts(self) -> Iterator[None]:
        """Every part that was asked for, one at a time; one that fails leaves the others."""
        acts = {
            "drain": self._drains,
            "daemon": self._daemons,
            "demo": self._demos,
            "streams": self._streams,
            "peer": self._peer,
        }
        for name in PARTS:
            if name in self._options.parts:
                try:
                    acts[name]()
                except (FreshnessError, subprocess.SubprocessError, TimeoutError) as error:
                    self.failed.append(name)
                    say(f"{name} was given up: {error}")
                yield

    def _drains(self) -> None:
        for _ in range(self._options.turns):
            home = self._fresh_home()
            self._keep(drain(COLD, home, send(home, self._next()), {}))
            self._keep(drain(AGAIN, home, send(home, self._next()), {}))
            end_leftovers(home.root)
        home = self._fresh_home()
        notes = Notes(home.root.with_suffix(".notes"))
        more = notes.switch_on(home)
        turns = [drain(way, home, send(home, self._next()), more) for way in (COLD, AGAIN)]
        end_leftovers(home.root)
        self._count(turns, home, notes)
        for way, target in ((COLD, 40.0), (AGAIN, 12.0)):
            self._time(way, "deltas_s", "its row in deltas")
            self._time(way, "hourly_s", "its row in hourly_counts")
            self._time(way, "command_s", "all tables, checked", target)
            self._cost(way)

    def _daemons(self) -> None:
        home = self._fresh_home()
        with daemon(home, {}, self._next()) as (running, cold):
            self._keep(cold)
            for _ in range(self._options.turns):
                self._keep(running.turn(self._next()))
            idle_s = self._options.idle_s
            if idle_s:
                used = running.idle(idle_s) * IDLE_S / idle_s
                self.figures.append(Figure("ui, idle, in five minutes", used, "CPU-s", 5.0))
        end_leftovers(home.root)
        home = self._fresh_home()
        notes = Notes(home.root.with_suffix(".notes"))
        with daemon(home, notes.switch_on(home), self._next()) as (running, cold):
            turns = [cold, running.turn(self._next())]
        end_leftovers(home.root)
        self._count(turns, home, notes)
        for way in ("daemon, cold", "daemon, warm"):
            is_warm = way == "daemon, warm"
            self._time(way, "deltas_s", "its row in deltas", 5.0 if is_warm else None)
            self._time(way, "hourly_s", "its row in hourly_counts")
            self._time(way, "tables_s", "all tables, checked", 15.0 if is_warm else None)
            self._cost(way)

    def _demos(self) -> None:
        home = self._empty_home(SETTINGS_TEXT)
        self._keep(demo(home, {}, self._options.demo_deltas))
        end_leftovers(home.root)
        home = self._empty_home(SETTINGS_TEXT)
        notes = Notes(home.root.with_suffix(".notes"))
        turn = demo(home, notes.switch_on(home), self._options.demo_deltas)
        end_leftovers(home.root)
        self._count([turn], home, notes, is_held=False)
        self._time("demo", "command_s", f"{self._options.demo_deltas:,} deltas", 75.0)
        self._cost("demo")
        for stage, seconds in self._of("demo")[0].stages.items():
            self.figures.append(Figure(f"demo: {stage}", seconds, "s"))

    def _streams(self) -> None:
        many, few = self._options.streams, len(TOUCHED)
        sides = [
            stream_turn(self._scratch / f"streams-{streams}", streams, many - few, self._options.deltas, self._next())
            for streams in (few, many)
        ]
        for turn in sides:
            self._keep(turn)
        beside, ours = (turn.command_s or 0.0 for turn in sides)
        name = f"60 deltas, {many} streams, of which {few} are touched"
        self.figures += [
            Figure(name, ours / beside, f"× of {few} streams", 1.1, beside),
            Figure(f"{name}: CPU-seconds", sides[1].cpu_s / sides[0].cpu_s, f"× of {few} streams"),
        ]

    def _peer(self) -> None:
        turns = peer_turns(self._scratch / "peer", self._options.deltas, self._options.turns)
        theirs = statistics.median(turn.deltas_s for turn in turns)
        minutes = statistics.median(turn.minutes_s for turn in turns)
        cpu_s = statistics.median(turn.cpu_s for turn in turns)
        self.figures += [
            Figure(f"{PEER}: its row in deltas", theirs, "s"),
            Figure(f"{PEER}: its row in minute_counts", minutes, "s"),
            Figure(f"{PEER}: until both", cpu_s, "CPU-s"),
        ]
        if ours := [turn.deltas_s for turn in self._of("daemon, warm") if turn.deltas_s is not None]:
            ratio = statistics.median(ours) / theirs
            self.figures.append(Figure("daemon, warm: its row in deltas", ratio, f"× of {PEER}", 3.0, theirs))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _fresh_home(self) -> Home:
        """A home at rest with tables: a copy of one that was drained once."""
        if self._with_tables is None:
            home = self._empty_home()
            send_base(home, self._options.deltas)
            say(f"a home with {self._options.deltas:,} deltas: the first drain")
            drain_all = command(home, "drain", "--json")
            subprocess.run(drain_all, env=environment({}), stdout=sys.stderr, stderr=sys.stderr, check=True)
            end_leftovers(home.root)
            self._with_tables = home
        return copy_of(self._with_tables, self._scratch / f"home-{self._next()}")

    def _empty_home(self, settings: str = TEMPLATE) -> Home:
        return Home(self._scratch / f"home-{self._next()}").create(settings)

    def _of(self, way: str) -> list[Turn]:
        return [turn for turn in self.turns if turn.way == way]

    def _keep(self, turn: Turn) -> None:
        say(in_words(turn))
        self.turns.append(turn)

    def _count(self, turns: Sequence[Turn], home: Home, notes: Notes, *, is_held: bool = True) -> None:
        """Count turns whose writers of notes have ended. Their seconds and CPU-seconds are not kept."""
        for turn in turns:
            counted = count(turn, home, notes)
            self.counted.append(counted)
            say(f"\n{as_text(counted)}\n")
            self.figures += [
                Figure(f"{turn.way}: Spark jobs", counted.total.jobs, "", JOBS if is_held else None),
                Figure(f"{turn.way}: SQL executions", counted.total.executions, "", EXECUTIONS if is_held else None),
                Figure(f"{turn.way}: statements to Dagster's storage", counted.total.statements, ""),
                Figure(f"{turn.way}: Delta commits", sum(turn.commits.values()), ""),
                Figure(f"{turn.way}: CPU with notes, of that without", self._with_notes(turn), "×"),
            ]

    def _with_notes(self, turn: Turn) -> float:
        return turn.cpu_s / statistics.median(each.cpu_s for each in self._of(turn.way))

    def _time(self, way: str, what: str, name: str, target: float | None = None) -> None:
        """The median of the turns of a way."""
        seconds = [found for turn in self._of(way) if (found := getattr(turn, what)) is not None]
        if seconds:
            self.figures.append(Figure(f"{way}: {name}", statistics.median(seconds), "s", target))

    def _cost(self, way: str) -> None:
        """CPU-seconds of all processes of a way, and of the benchmark beside them."""
        for name, what in (("all processes", "cpu_s"), ("looking on", "looking_s")):
            spent = statistics.median(getattr(turn, what) for turn in self._of(way))
            self.figures.append(Figure(f"{way}: {name}", spent, "CPU-s"))


def in_words(turn: Turn) -> str:
    """A turn in a line or two."""
    rows = [("deltas", turn.deltas_s), ("hourly_counts", turn.hourly_s), ("all tables, checked", turn.tables_s)]
    reached = ", ".join(f"{name} after {seconds:.1f} s" for name, seconds in rows if seconds is not None)
    cpu = ", ".join(f"{kind} {cpu_s:.1f}" for kind, cpu_s in turn.cpu_by_kind.items())
    checks = f"{sum(turn.commits.values())} commits, {sum(turn.checks.values())} check results"
    wrong = f"; WITHOUT A CHECK THAT PASSED: {', '.join(turn.unproven)}" if turn.unproven else ""
    return f"{turn.way}: {reached}; {turn.cpu_s:.1f} CPU-seconds ({cpu}); {checks}{wrong}"


def main(json_output: bool, options: Options) -> int:
    """Go all ways, and print each part when it is over.

    Gives the exit code: 1 if a part failed or a partition is without a check that passed.
    """
    adopt_orphans()
    # Ended by either, it ends what it started. A shell's background job ignores the first, and so would all children.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        bench = Bench(Path(scratch), options)
        try:
            before = (0, 0, 0)
            for _ in bench.parts():
                for line in _json_lines(bench, before) if json_output else _text_lines(bench.figures[before[2] :]):
                    print(line, flush=True)
                before = (len(bench.turns), len(bench.counted), len(bench.figures))
        finally:
            end_leftovers(Path(scratch))
    turns = [*bench.turns, *(counted.turn for counted in bench.counted)]
    return 1 if bench.failed or any(turn.unproven for turn in turns) else 0


def _json_lines(bench: Bench, before: tuple[int, int, int]) -> Iterator[str]:
    """What was found since there were so many turns, counted turns and figures."""
    turns, counts, figures = before
    for turn in bench.turns[turns:]:
        yield json.dumps({"turn": asdict(turn)})
    for counted in bench.counted[counts:]:
        yield json.dumps({"counted": counted.as_json()})
    for figure in bench.figures[figures:]:
        yield json.dumps({"figure": asdict(figure), "met": figure.is_met})


def _text_lines(figures: Iterable[Figure]) -> Iterator[str]:
    for figure in figures:
        number = f"{figure.value:,.0f}" if isinstance(figure.value, int) else f"{figure.value:.2f}"
        beside = f" ({figure.beside:.2f} s)" if figure.beside is not None else ""
        held = f", target {figure.target:g} {'met' if figure.is_met else 'missed'}" if figure.target is not None else ""
        yield f"{figure.name}: {' '.join(filter(None, [number, figure.unit]))}{beside}{held}"


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := set(chosen) - set(PARTS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} is none of {', '.join(PARTS)}.")
    return chosen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tidemark bench freshness", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--only", type=_parts, default=PARTS, help=f"some of {','.join(PARTS)} (default: all)")
    parser.add_argument("--turns", type=int, default=3, help="of drains, daemon and peer (default: 3)")
    parser.add_argument("--deltas", type=int, default=BASE_DELTAS, help="in the home before (default: 3,000)")
    parser.add_argument("--demo-deltas", type=int, default=60_000, help="of the demo (default: 60,000)")
    parser.add_argument("--streams", type=int, default=100, help="of the home with many (default: 100)")
    parser.add_argument("--idle", type=float, default=60.0, help="how long the idle daemon is measured (default: 60 s)")
    asked = parser.parse_args()
    chosen = Options(asked.only, asked.turns, asked.deltas, asked.demo_deltas, asked.streams, asked.idle)
    sys.exit(main(asked.json, chosen))
