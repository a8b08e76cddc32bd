"""The demo's final report: where each delta went, the tables, the watermarks, the busiest entities, the time.

Belongs here: gathering it (from delta-rs and the log, without a JVM) and printing it, for people or as JSON.
"""

import os
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, to_builtins
from rich.console import Console
from rich.table import Table

from orchestration.cli.status_view import lake_table, watermark_table
from tidemark.answers.account import account_as_json
from tidemark.cli.account import account_table
from tidemark.cli.output import table
from tidemark.model.timegrid import from_us
from tidemark.observe.account import Account, take_account
from tidemark.observe.home_status import stream_watermarks
from tidemark.observe.lake_status import TableStatus, read_tables
from tidemark.observe.status import read_status
from tidemark.storage.home import Home
from tidemark.tables.lake_files import open_table

BUSIEST = 8
ROOT = Path(__file__).resolve().parents[2]


class Check(Struct, frozen=True):
    """The state of one table, after its suite was run on each of its partitions."""

    asset: str
    name: str
    partitions: int  # checked
    failed: list[str]  # partitions that failed, or were not checked in their present form
    detail: str = ""  # what failed, how many rows, and some of them (O5)

    @property
    def passed(self) -> bool:
        """Whether every partition passed its check."""
        return not self.failed


class Entity(Struct, frozen=True):
    """One entity with its totals."""

    namespace: str
    entity_id: str
    count: int
    deltas: int
    weight: str  # exact, six decimals
    signals: dict[str, int]


class Report(Struct, frozen=True):
    """Everything that the demo reports."""

    account: Account
    tables: dict[str, TableStatus]
    watermarks: dict[str, int]
    checks: list[Check]
    stages: dict[str, float]
    top: list[Entity]
    is_changed: bool  # whether this run added anything


def put_together(home: Home, checks: list[Check], stages: dict[str, float], *, is_changed: bool) -> Report:
    """Read the home as it is now."""
    return Report(
        account=take_account(home),
        tables=read_tables(home),
        watermarks=stream_watermarks(read_status(home)),
        checks=checks,
        stages=stages,
        top=busiest_entities(home),
        is_changed=is_changed,
    )


def busiest_entities(home: Home) -> list[Entity]:
    """Entities with the highest counts over all weeks, ties by name."""
    found = open_table(home.lake / "weekly_counts")
    if found is None:
        return []
    columns = ["namespace", "entity_id", "signal", "count", "weight_sum", "deltas"]
    counts = found.to_pyarrow_table(columns=columns)
    sums = [("count", "sum"), ("weight_sum", "sum"), ("deltas", "sum")]
    entities = counts.group_by(["namespace", "entity_id"]).aggregate(sums)
    keys = [("count_sum", "descending"), ("namespace", "ascending"), ("entity_id", "ascending")]
    return [_entity(row, counts) for row in entities.sort_by(keys).slice(0, BUSIEST).to_pylist()]


def _entity(row: dict[str, Any], counts: pa.Table) -> Entity:
    is_mine = pc.and_(pc.equal(counts["namespace"], row["namespace"]), pc.equal(counts["entity_id"], row["entity_id"]))
    mine = counts.filter(is_mine).group_by("signal").aggregate([("count", "sum")])
    signals = sorted(mine.to_pylist(), key=lambda found: (-found["count_sum"], found["signal"]))
    whole, millionths = divmod(abs(row["weight_sum_sum"]), 1_000_000)
    return Entity(
        namespace=row["namespace"],
        entity_id=row["entity_id"],
        count=row["count_sum"],
        deltas=row["deltas_sum"],
        weight=f"{'-' if row['weight_sum_sum'] < 0 else ''}{whole}.{millionths:06d}",
        signals={found["signal"]: found["count_sum"] for found in signals},
    )


def as_json(report: Report) -> dict[str, Any]:
    """One object; `account` has integers only, and its outcomes add up to `received`."""
    return {
        **account_as_json(report.account),
        "tables": to_builtins(report.tables),
        "checks": [{**to_builtins(check), "passed": check.passed} for check in report.checks],
        "watermarks": {stream: from_us(watermark).isoformat() for stream, watermark in report.watermarks.items()},
        "stages": {name: round(seconds, 3) for name, seconds in report.stages.items()},
        "top": to_builtins(report.top),
        "changed": report.is_changed,
    }


def failures(report: Report) -> list[str]:
    """The problems, one sentence each; none if the demo went well."""
    return [
        *(f"DOES NOT ADD UP: {sentence}" for sentence in report.account.disagreements),
        *(f"FOUND WRONG: {check.asset}: {check.detail}" for check in report.checks if not check.passed),
    ]


def show(report: Report, steps: list[tuple[str, str]], out: Console) -> None:
    """Print it for people, with commands to try next."""
    if not report.is_changed:
        out.print("This day was here already: every write was answered as a duplicate, and nothing changed.\n")
    out.print(account_table(report.account))
    out.print(lake_table(report.tables))
    out.print(watermark_table(report.watermarks))
    out.print(_top_table(report.top))
    out.print(_check_table(report.checks))
    out.print(_stage_table(report.stages))
    for sentence in failures(report):
        out.print(sentence)
    out.print("Try next:", style="bold")
    for line, what in steps:
        out.print(f"  {line}", soft_wrap=True)
        out.print(f"      {what}", style="dim")


def next_steps(home: Home) -> list[tuple[str, str]]:
    """Lines that work as pasted, from the project's directory, each with what it does.

    Call this before anything is run: a run points `TIDEMARK_HOME` of this process to its home.
    """
    is_default = home == Home.locate(None)
    tidemark = "./tidemark" if is_default else f"./tidemark --home {shlex.quote(str(home.root))}"
    delta = (
        '{"namespace": "shop", "kind": "signal", "delta_id": "mine-1", "event_ts": "2026-03-02T12:00:00Z", '
        '"signal": {"entity_id": "item-0001", "signal": "view"}}'
    )
    lake = os.path.relpath(home.lake, ROOT) if home.root.is_relative_to(ROOT) else str(home.lake)
    peek = f"import polars; print(polars.read_delta({f'{lake}/hourly_counts'!r}).sort('count').tail())"
    return [
        (f"{tidemark} demo", "the same day again: nothing changes"),
        (f"{tidemark} demo --seed 8", "another day on top of this one"),
        (f"echo '{delta}' | {tidemark} send -", "a delta of your own"),
        (f"{tidemark} drain", "bring it into the tables"),
        (f"{tidemark} checksum", "rows and checksum of every table"),
        (f"{tidemark} verify", "read every stored byte again"),
        (f'.venv/bin/python -c "{peek}"', "the tables open in anything that reads Delta"),
        (f"{tidemark} ui", "assets, partitions and checks in the browser"),
    ]


def _top_table(top: list[Entity]) -> Table:
    rows = table(
        "Busiest entities",
        "namespace",
        "entity",
        "count",
        "deltas",
        "weight",
        "by signal",
        numbers=("count", "deltas", "weight"),
    )
    for entity in top:
        signals = ", ".join(f"{name} {count:,}" for name, count in entity.signals.items())
        rows.add_row(
            entity.namespace, entity.entity_id, f"{entity.count:,}", f"{entity.deltas:,}", entity.weight, signals
        )
    return rows


def _check_table(checks: list[Check]) -> Table:
    rows = table("Checks", "table", "partitions checked", "failed", numbers=("partitions checked", "failed"))
    for check in checks:
        rows.add_row(check.asset, f"{check.partitions:,}", f"{len(check.failed):,}")
    return rows


def _stage_table(stages: dict[str, float]) -> Table:
    rows = table("How long it took", "stage", "seconds", numbers=("seconds",))
    for name, seconds in stages.items():
        rows.add_row(name, f"{seconds:.1f}")
    rows.add_section()
    rows.add_row("in all", f"{sum(stages.values()):.1f}")
    return rows
