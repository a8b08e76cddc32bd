"""All commands of `./tidemark`: the library's, and those that start runs of the orchestrator or look at them.

Belongs here: the table. `tidemark.cli.app` finds and calls a command.
"""

from collections.abc import Sequence

from tidemark.cli import app
from tidemark.cli.app import Entry

COMMANDS = (
    Entry("Run", "demo", "orchestration.cli.demo:demo", "A seeded day of deltas, from producers to checked tables."),
    Entry("Ask", "status", "orchestration.cli.status:status", "How far each shard and each table is.", is_light=True),
    *app.COMMANDS,
    Entry(
        "Run",
        "drain",
        "orchestration.cli.work:drain",
        "Bring sealed segments into the tables; refresh what is stale.",
        starts_runs=True,
    ),
    Entry(
        "Run",
        "rebuild",
        "orchestration.cli.work:rebuild",
        "Write hours of deltas and dead_letters again, from segments.",
        starts_runs=True,
    ),
    Entry(
        "Run",
        "backfill",
        "orchestration.cli.work:backfill",
        "Compute hours of chosen assets again.",
        starts_runs=True,
    ),
    Entry(
        "Run",
        "count-all",
        "orchestration.cli.work:count_all",
        "All windows of all entities, as of a minute, as a table.",
        starts_runs=True,
    ),
    Entry(
        "Run",
        "check",
        "orchestration.cli.work:check",
        "Run the checks again on what lies in the tables now.",
        starts_runs=True,
    ),
    Entry(
        "Ask", "report", "orchestration.cli.report:report", "One HTML page with plots of this home, to look at offline."
    ),
    Entry(
        "Operate",
        "compact",
        "orchestration.cli.compact:compact",
        "Checkpoints of vectors; remove payloads before the horizon.",
        starts_runs=True,
    ),
    Entry(
        "Operate",
        "retain",
        "orchestration.cli.retain:retain",
        "Drop old minutes, hours and days of the counts, for ever.",
        starts_runs=True,
    ),
    Entry(
        "Operate", "warm", "orchestration.cli.warm:warm", "The process that keeps everything imported.", is_light=True
    ),
    Entry("Operate", "ui", "orchestration.cli.ui:ui", "Dagster's web interface and daemon on this home."),
    Entry(
        "Develop", "test", "orchestration.cli.develop:test", "Lint, types, imports and tests; arguments go to pytest."
    ),
    Entry(
        "Develop",
        "chaos",
        "orchestration.cli.chaos:chaos",
        "Crashes and failing disks by seed, against the coordinator.",
    ),
    Entry("Develop", "bench", "orchestration.cli.develop:bench", "Measure against a peer on the same data."),
)


def main(arguments: Sequence[str] | None = None, *, is_own_process: bool = False) -> int:
    """Run one command; gives its exit code."""
    return app.main(arguments, commands=COMMANDS, is_own_process=is_own_process)
