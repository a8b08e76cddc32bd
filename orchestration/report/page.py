"""The page: exhibits, tables and a stylesheet in one HTML file that refers to nothing outside itself.

Belongs here: the layout, and writing the file. Everything from a home (names, reasons, messages) reaches the template
as plain text, which escapes it; only the drawings are markup already.
"""

import os
import re
import shlex
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from orchestration.report import exhibits
from orchestration.report.exhibits import Exhibit
from orchestration.report.figures import Figures
from orchestration.report.gather import gather
from orchestration.report.plots import PALETTE
from tidemark.cli.output import at, in_bytes
from tidemark.observe.home_status import stream_watermarks
from tidemark.storage.home import Home
from tidemark.storage.privacy import as_user_asked

TEMPLATE = Path(__file__).with_name("page.html")
FILE_NAME = "report.html"
# A list that a person scrolls through; the page says how many were left out.
MOST_STREAMS = 50


@dataclass(frozen=True)
class Section:
    """Some exhibits under one heading."""

    name: str
    title: str
    exhibits: tuple[Exhibit, ...]
    nothing: str  # text when there are none


def write_report(home: Home, *, now_us: int, out: Path | None = None) -> Path:
    """Write the page of a home, whole or not at all, and give its path."""
    path = (out or home.reports / FILE_NAME).expanduser().resolve()
    page = render(gather(home, now_us=now_us), again=_again(home, path if out else None))
    # A page at a path of the user's choice gets the permissions of the user's other files.
    with as_user_asked() if out else nullcontext():
        path.parent.mkdir(parents=True, exist_ok=True)
        # A reader may have the previous page open.
        _remove_leftovers(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(path)
    return path


def _remove_leftovers(path: Path) -> None:
    """Remove files left by processes that were killed while they wrote this page."""
    for left in path.parent.iterdir():
        found = re.fullmatch(rf"\.{re.escape(path.name)}\.(\d+)\.tmp", left.name)
        if found and not Path("/proc", found[1]).exists():
            left.unlink(missing_ok=True)


def render(figures: Figures, *, again: str) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"at": at, "in_bytes": in_bytes, "number": lambda number: f"{number:,}"}
    return environment.get_template(TEMPLATE.name).render(
        figures=figures,
        snapshot=figures.snapshot,
        outcomes=figures.account.outcomes,
        unknown_times=figures.account.unknown_times,
        failed=sum(len(found.failed) for found in figures.snapshot.orchestrator.checks.values()),
        watermarks=stream_watermarks(figures.snapshot.shards),
        most_streams=MOST_STREAMS,
        sections=_sections(figures),
        palette=PALETTE,
        again=again,
    )


def _sections(figures: Figures) -> dict[str, Section]:
    late, verdicts = figures.lateness, figures.snapshot.orchestrator.checks
    found = (
        Section(
            "arrivals",
            "Arrivals and lateness",
            _present(
                exhibits.arrivals(figures),
                exhibits.lateness(late) if late else None,
                exhibits.late_rows(late) if late else None,
            ),
            "Nothing was sealed yet.",
        ),
        Section("counts", "Counts per hour", _present(exhibits.counts(figures)), "hourly_counts has no rows yet."),
        Section(
            "lag", "Watermarks and lag", _present(exhibits.lag(figures.lag)), "No delta met a watermark at arrival yet."
        ),
        Section(
            "outcomes",
            "Outcomes",
            _present(exhibits.outcomes(figures), exhibits.refusals(figures), exhibits.refusals_in_words(figures)),
            "Nothing was received yet.",
        ),
        Section(
            "checks",
            "Checks",
            _present(exhibits.checks(verdicts), exhibits.failures(verdicts)),
            figures.snapshot.orchestrator_error or "No partition was materialized yet: ./tidemark drain does that.",
        ),
    )
    return {section.name: section for section in found}


def _present(*found: Exhibit | None) -> tuple[Exhibit, ...]:
    return tuple(exhibit for exhibit in found if exhibit)


def _again(home: Home, out: Path | None) -> str:
    """The command that makes this page again, from the project's directory."""
    words = ["./tidemark", "report"]
    if home != Home.locate(None):
        words += ["--home", str(home.root)]
    return shlex.join([*words, "--out", str(out)] if out else words)
