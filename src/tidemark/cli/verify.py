"""`verify`: every byte that the platform stands on, read again.

Belongs here: the command and its words. What is read and proved is in `tidemark/observe/verification.py`.
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

    Ends with 1 if anything is not what was written.
    """
    proof = prove(home)
    if as_json:
        answer_json(to_builtins(proof))
    else:
        _show(proof)
    if proof.damage:
        raise click.exceptions.Exit(1)


def _show(proof: Verification) -> None:
    click.echo(
        f"{proof.segments:,} of {proof.manifest_entries:,} segments ({in_bytes(proof.segment_bytes)}, {proof.deltas:,} "
        f"deltas) of {proof.shards} shard(s) are byte for byte what was sealed, in an unbroken row of manifest entries."
    )
    click.echo(
        f"{proof.log_frames:,} frames in {proof.log_files:,} log files have the checksum they were written with."
    )
    if proof.torn_tails:
        click.echo(
            f"{proof.torn_tails} log file(s) end in an unfinished write that nobody was told of; it will be cut off."
        )
    for damage in proof.damage:
        click.echo(f"DAMAGED: {damage}")
    if not proof.damage:
        click.echo("Nothing is damaged.")
