"""What the guide shows runs as it stands there; links lead somewhere, and the glossary has one entry for each word."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs/guide/glossary.md"
PAGES = [*sorted((ROOT / "docs/guide").glob("*.md")), ROOT / "docs/specification.md", ROOT / "docs/decisions/README.md"]


def test_the_lines_on_counts_in_memory_run_and_count_what_they_wrote(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/warm.md").read_text(), re.DOTALL)
    environment = {**os.environ, "TIDEMARK_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, many, resolved, speed, top = done.stdout.splitlines()
    assert (first, many, resolved) == ("1", "[1 0]", "[1 0]")
    assert float(speed) > 0
    assert top == "[Ranked(entity='item-7', count=1)]"


def anchors(page: Path) -> set[str]:
    """What may stand behind `#` in a link to a page: its headings, as GitHub writes them, and explicit anchors."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


def rows(section: str) -> list[list[str]]:
    """The cells of all tables of a section, without the heads of the tables."""
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [row for row in cells if row[0] != "word" and not row[0].startswith("---")]


def test_the_glossary_has_one_entry_for_each_word_and_common_words_lead_to_one() -> None:
    words, _, rest = GLOSSARY.read_text().partition("## Looking for a common word")
    common, _, _ = rest.partition("## Old words")
    entries = [word for first, *_ in rows(words) for word in first.split(", ")]
    assert sorted(set(entries)) == sorted(entries)
    sought = {name: to.split(", ") for name, to in rows(common)}
    assert {word for to in sought.values() for word in to} <= set(entries)
    text = " ".join(sought)
    assert all(word in text for word in ("deduplicate", "write-ahead log", "snapshot", "cache", "lineage"))


def test_the_guide_lists_the_tables_that_are_always_there_with_their_partitions() -> None:
    from assets.ingest.schema import DEAD_LETTERS, DELTAS
    from assets.rollups.schema import TIERS, WINDOWED_COUNTS
    from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTOR_CONFLICTS, VECTORS

    page = (ROOT / "docs/guide/tables.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| .+ \| `(\w+)`.* \|$", page, re.MULTILINE)
    tables = (DELTAS, DEAD_LETTERS, *TIERS, VECTORS, VECTOR_CHECKPOINTS, VECTOR_CONFLICTS, WINDOWED_COUNTS)
    assert listed == [(spec.name, spec.partition_by) for spec in tables]
