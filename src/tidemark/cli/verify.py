"""`verify`: every byte that the platform stands on, read again.

Belongs here: the command and its output. What is read and verified is in `tidemark/observe/verification.py`.
"""

import click
from msgspec import to_builtins

from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, in_bytes
from tidemark.observe.verification import Verification, prove
from tidemark.storage.home import Home


@command
@as_json
def verify(home: Home, as_json: bool) -> None:
    """Read every segment, log file and manifest again and compare each with its checksum. Repairs nothing.

    Exits with 1 if anything is not as it was written.
    """
    found = prove(home)
    if as_json:
        answer_json(to_builtins(found))
    else:
        _show(found)
    if found.damage:
        raise click.exceptions.Exit(1)


def _show(found: Verification) -> None:
    click.echo(
        f"{found.segments:,} of {found.manifest_entries:,} segments ({in_bytes(found.segment_bytes)}, {found.deltas:,} "
        f"deltas) of {found.shards} shard(s) are byte for byte as sealed, in an unbroken chain of manifest entries."
    )
    click.echo(
        f"{found.log_frames:,} frames in {found.log_files:,} log files have the checksum they were written with."
    )
    if found.torn_tails:
        click.echo(
            f"{found.torn_tails} log file(s) end in a write that was never acknowledged; the next start cuts it off."
        )
    for damage in found.damage:
        click.echo(f"DAMAGED: {damage}")
    if not found.damage:
        click.echo("Nothing is damaged.")
