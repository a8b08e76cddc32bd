"""The report's exhibits: each a plot with its title, one sentence that reads it, and the numbers behind it.

Belongs here: the choice of plots and their text. `plots.py` draws a plot, `page.html` lays out the page. All text is
plain: the page escapes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestration.report import plots
from orchestration.report.figures import AHEAD, Figures, Lag, Lateness
from orchestration.report.timeline import WIDTH_NAMES, Timeline, timeline
from orchestration.run_status import CheckStatus
from tidemark.cli.output import at, counted
from tidemark.model.deltas import Verdict
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US, from_us

VERDICT_TONES = {
    str(Verdict.ACCEPTED): plots.SEA,
    str(Verdict.DUPLICATE): plots.SAND,
    str(Verdict.REFUSED): plots.CORAL,
}
# Short enough that a person reads it to its end.
MOST_FAILURES = 50
CHECK_TONES = {"passed": plots.MOSS, "failed": plots.CORAL, "not checked": plots.STONE}


@dataclass(frozen=True)
class Exhibit:
    """One plot with its title, sentence and numbers."""

    title: str
    reading: str
    svg: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_wide: bool = True
    is_words: bool = False  # whether the rows are words to read, and not numbers to look up


def arrivals(figures: Figures) -> Exhibit | None:
    """When deltas arrived, and with which verdicts."""
    if not figures.arrivals:
        return None
    over_time = timeline(figures.arrivals)
    busiest, most = _peak(over_time)
    total = sum(figures.arrivals.values())
    return Exhibit(
        title=f"Arrivals, per {over_time.per} of receipt",
        reading=f"{total:,} deltas arrived; the busiest {over_time.per} began {busiest} with {most:,}."
        f"{_left_out(over_time, 'deltas')} Copies that only the drain could see count as accepted here.",
        svg="" if over_time.is_constant else plots.bars_over_time(over_time, VERDICT_TONES, unit="deltas"),
        columns=[f"{over_time.per} (UTC)", *VERDICT_TONES],
        rows=_rows(over_time, list(VERDICT_TONES)),
    )


def lateness(late: Lateness) -> Exhibit:
    """How long after its event a delta was received."""
    return Exhibit(
        title="How late deltas are",
        reading=f"Half of {late.deltas:,} accepted deltas came within {duration(late.median_us)} of their event and "
        f"99 of 100 within {duration(late.p99_us)}; the latest took {duration(late.most_us)}.",
        svg=plots.ranges(
            late.ranges, {name: plots.STONE if name == AHEAD else plots.SEA for name in late.ranges}, unit="deltas"
        ),
        columns=["received after its event", "deltas"],
        rows=[(name, f"{number:,}") for name, number in late.ranges.items()],
        is_wide=False,
    )


def late_rows(late: Lateness) -> Exhibit:
    """Deltas that arrived after the watermark had left their hour."""
    hours = {key: number for key, number in late.hours.items() if key[1] == "late"}
    # Begins where the plot of all deltas does: otherwise hours with only stragglers would fill most of it.
    over_time = timeline(hours, start_us=timeline(late.hours).start_us)
    reading = (
        f"{late.late:,} of {late.deltas:,} deltas ({late.late / late.deltas:.1%}) came when the watermark had passed "
        f"the end of their hour.{_left_out(over_time, 'late deltas')}"
    )
    newest = sorted({start: late.hours.get((start, "in time"), 0) for start, _ in late.hours}.items())[-200:]
    drawing = plots.bars_over_time(
        over_time, {"late": plots.CORAL}, unit="late deltas", width=plots.NARROW, height=290, has_legend=False
    )
    return Exhibit(
        title=f"Late for their hour, per {over_time.per} of the event",
        reading=reading if hours else "No delta came too late for its hour.",
        svg="" if over_time.is_constant else drawing,
        columns=["hour of the event (UTC)", "late", "in time"],
        rows=[
            (f"{from_us(start):%Y-%m-%d %H:%M}", f"{late.hours.get((start, 'late'), 0):,}", f"{in_time:,}")
            for start, in_time in newest
        ],
        is_wide=False,
    )


def counts(figures: Figures) -> Exhibit | None:
    """The sums of `hourly_counts`, by signal."""
    if not figures.counts:
        return None
    over_time = timeline(figures.counts)
    names = over_time.series()
    busiest, most = _peak(over_time)
    sums = {name: sum(number for (_, each), number in figures.counts.items() if each == name) for name in names}
    largest = names[0]
    return Exhibit(
        title=f"Counts per signal, per {over_time.per} of the event",
        reading=f"The most frequent signal is “{largest}” with {sums[largest]:,} of {sum(figures.counts.values()):,}; "
        f"the busiest {over_time.per} began {busiest} with {most:,}.{_left_out(over_time, 'counted')}",
        svg="" if over_time.is_constant else plots.bars_over_time(over_time, plots.tones_of(names), unit="count"),
        columns=[f"{over_time.per} (UTC)", *names],
        rows=_rows(over_time, names),
    )


def lag(found: Lag) -> Exhibit | None:
    """How far watermarks were behind the clock when deltas arrived."""
    if not found.points:
        return None
    streams = sorted({point.stream for point in found.points})
    worst = max(found.points, key=lambda point: point.median_us)
    last = {point.stream: point for point in found.points}
    values = [value for point in found.points for value in (point.median_us, point.p95_us)]
    # Less than a pixel or two of the plot's height.
    is_drawn = max(values) - min(values) > max(map(abs, values)) // 100
    return Exhibit(
        title="How far watermarks lag behind the clock",
        reading=f"Receipt minus watermark, per {WIDTH_NAMES[found.width_us]}: the line is the median, and 19 of 20 "
        f"deltas are below the end of the shade; the highest median is {duration(worst.median_us)}, of {worst.stream} "
        f"from {at(worst.start_us)} on."
        if is_drawn
        else f"It is {duration(worst.median_us)} throughout, so there is nothing to draw.",
        svg=plots.lag_over_time(found, plots.tones_of(streams)) if is_drawn else "",
        columns=["stream", "last stretch from (UTC)", "median lag", "95 % below"],
        rows=[
            (stream, at(last[stream].start_us), duration(last[stream].median_us), duration(last[stream].p95_us))
            for stream in streams
        ],
    )


def outcomes(figures: Figures) -> Exhibit | None:
    """How many of the received deltas got which verdict."""
    found = figures.account.outcomes
    if not found.received:
        return None
    numbers = {
        "accepted": found.accepted,
        "waiting": found.waiting,
        "duplicate": found.duplicate,
        "refused": found.refused,
    }
    if found.turned_away:
        numbers["turned away"] = found.turned_away
    tones = {**VERDICT_TONES, "waiting": plots.STONE, "turned away": plots.STONE}
    arrival, drain = figures.account.duplicates_at_arrival, figures.account.duplicates_at_drain
    return Exhibit(
        title="Outcomes",
        reading=f"{found.accepted / found.received:.1%} of {found.received:,} received deltas are in the tables; of "
        f"the copies, {arrival:,} were seen at arrival and {drain:,} by the drain.",
        svg=plots.ranked_bars(numbers, tones, width=plots.WIDE),
        columns=["outcome", "deltas"],
        rows=[(name, f"{number:,}") for name, number in numbers.items()],
    )


def refusals(figures: Figures) -> Exhibit | None:
    """Why deltas were refused."""
    reasons = figures.account.reasons
    if not reasons:
        return None
    first = next(iter(reasons))
    return Exhibit(
        title="Why deltas were refused",
        reading=f"{sum(reasons.values()):,} deltas were refused for {counted(len(reasons), 'reason')}, most often "
        f"{first} ({reasons[first]:,}); each is kept with its bytes in dead_letters.",
        svg=plots.ranked_bars(reasons, dict.fromkeys(reasons, plots.CORAL)),
        columns=["reason", "deltas"],
        rows=[(reason, f"{number:,}") for reason, number in reasons.items()],
        is_wide=False,
    )


def refusals_in_words(figures: Figures) -> Exhibit | None:
    """The sentence that a producer got with the refusal."""
    found = [(reason, figures.details[reason]) for reason in figures.account.reasons if reason in figures.details]
    if not found:
        return None
    return Exhibit(
        title="What was said of them",
        reading="One example for each reason; dead_letters has the sentence of every refused delta.",
        svg="",
        columns=["reason", "for example"],
        rows=found,
        is_wide=False,
        is_words=True,
    )


def checks(found: Mapping[str, CheckStatus]) -> Exhibit | None:
    """How many partitions of each table passed their check."""
    if not found:
        return None
    shares = {
        table: {"passed": status.passed, "failed": len(status.failed), "not checked": status.unjudged}
        for table, status in sorted(found.items())
    }
    sums = {name: sum(parts[name] for parts in shares.values()) for name in CHECK_TONES}
    return Exhibit(
        title="Partitions by verdict",
        reading=f"Of {counted(sum(sums.values()), 'partition')} in {counted(len(shares), 'table')}, "
        f"{sums['passed']:,} passed their suite, {sums['failed']:,} failed and {sums['not checked']:,} are not checked "
        "in their present form.",
        svg=plots.share_bars(shares, CHECK_TONES),
        columns=["table", *CHECK_TONES],
        rows=[(table, *(f"{number:,}" for number in parts.values())) for table, parts in shares.items()],
    )


def failures(found: Mapping[str, CheckStatus]) -> Exhibit | None:
    """What the suites report on partitions that failed."""
    failed = [
        (table, each.partition, each.message) for table, status in sorted(found.items()) for each in status.failed
    ]
    if not failed:
        return None
    return Exhibit(
        title="Failed checks",
        reading="Every partition that failed its suite, in the suite's words."
        if len(failed) <= MOST_FAILURES
        else f"The first {MOST_FAILURES} of {len(failed):,} partitions that failed their suites, in the suites' words.",
        svg="",
        columns=["table", "partition", "what is wrong"],
        rows=failed[:MOST_FAILURES],
        is_words=True,
    )


def duration(span_us: int) -> str:
    """A duration as people say it, in at most two units."""
    sign, rest = ("−", -span_us) if span_us < 0 else ("", span_us)
    if rest < MINUTE_US:
        return f"{sign}{rest / SECOND_US:.3g} s"
    for (large, large_us), (small, small_us) in (
        (("days", DAY_US), ("h", HOUR_US)),
        (("h", HOUR_US), ("min", MINUTE_US)),
        (("min", MINUTE_US), ("s", SECOND_US)),
    ):
        if rest >= large_us:
            whole, part = divmod(rest // small_us, large_us // small_us)
            name = "day" if large == "days" and whole == 1 else large
            return f"{sign}{whole:,} {name} {part} {small}" if part else f"{sign}{whole:,} {name}"
    raise AssertionError(f"{rest} is at least a minute")


def _peak(over_time: Timeline) -> tuple[str, int]:
    start, number = max(over_time.totals.items(), key=lambda item: (item[1], -item[0]))
    return at(start).removesuffix(":00"), number


def _left_out(over_time: Timeline, what: str) -> str:
    """A sentence on anything the plot leaves out; begins with a space."""
    if over_time.is_constant and over_time.length > 1:
        return f" Every {over_time.per} has the same, so there is nothing to draw."
    if not over_time.earlier:
        return ""
    return f" Not drawn: {over_time.earlier_total:,} {what} in {counted(over_time.earlier, 'earlier hour')}."


def _rows(over_time: Timeline, names: Sequence[str]) -> list[Sequence[str]]:
    return [
        (f"{from_us(start):%Y-%m-%d %H:%M}", *(f"{over_time.buckets.get((start, name), 0):,}" for name in names))
        for start in over_time.totals
    ]
