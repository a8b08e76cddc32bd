"""All commands of `./tidemark`: the library's, and those that start runs of the orchestrator or look at them.

Belongs here: the table. `tidemark.cli.app` finds and calls a command.
"""

from collections.abc import Sequence
from functools import partial

from tidemark.cli import app
from tidemark.cli.app import Entry


def _ours(group: str, name: str, place: str, summary: str, **more: bool) -> Entry:
    """A command whose module is in this package."""
    return Entry(group, name, f"{__package__}.{place}", summary, **more)


_starts = partial(_ours, starts_runs=True)

COMMANDS = (
    _ours("Run", "demo", "demo:demo", "A seeded day of deltas, from producers to checked tables."),
    _ours("Ask", "status", "status:status", "How far each shard and each table is.", is_light=True),
    *app.COMMANDS,
    _starts("Run", "drain", "work:drain", "Bring sealed segments into the tables; refresh what is stale."),
    _starts("Run", "rebuild", "work:rebuild", "Write hours of deltas and dead_letters again, from segments."),
    _starts("Run", "backfill", "work:backfill", "Compute hours of chosen assets again."),
    _starts("Run", "count-all", "work:count_all", "All windows of all entities, as of a minute, as a table."),
    _starts("Run", "check", "work:check", "Run the checks again on what lies in the tables now."),
    _ours("Ask", "report", "report:report", "One HTML page with plots of this home, to look at offline."),
    _starts("Operate", "compact", "compact:compact", "Checkpoints of vectors; remove payloads before the horizon."),
    _starts("Operate", "retain", "retain:retain", "Drop old minutes, hours and days of the counts, for ever."),
    _ours("Operate", "warm", "warm:warm", "The process that keeps everything imported.", is_light=True),
    _ours("Operate", "ui", "ui:ui", "Dagster's web interface and daemon on this home."),
    _ours("Develop", "test", "develop:test", "Lint, types, imports and tests; arguments go to pytest."),
    _ours("Develop", "chaos", "chaos:chaos", "Crashes and failing disks by seed, against the coordinator."),
    _ours("Develop", "bench", "develop:bench", "Measure against a peer on the same data."),
)


def main(arguments: Sequence[str] | None = None, *, is_own_process: bool = False) -> int:
    """Run one command; gives its exit code."""
    return app.main(arguments, commands=COMMANDS, is_own_process=is_own_process)
