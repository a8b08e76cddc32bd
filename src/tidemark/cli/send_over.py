"""`send` over a connection: to a server elsewhere, or to the process that serves the home.

Belongs here: what the client of such a call does, and what the report knows of it. Reading files is in `inputs.py`.
"""

import ssl
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from tidemark.cli.inputs import CHUNK, CHUNK_BYTES
from tidemark.client.batches import Reached
from tidemark.client.client import Client, connect
from tidemark.client.errors import ClientError, NotYetError, RefusedError
from tidemark.client.handles import Sent

# How long the first answer of a server may take, and how often a slow one is looked at.
CONNECT_S, LOOK_S = 20.0, 0.5
# Writes on their way to a server elsewhere. To one on this machine they go one by one, as to a platform.
AHEAD = 16
# A chunk of large deltas becomes several writes, which fit into a frame as they are. A file that is sent again must
# give the same ones, so this may not change lightly.
WRITE_BYTES = 8 * 1024 * 1024
NOT_NAMED = "(not named by the server)"


class Destination(NamedTuple):
    """Where a file goes."""

    address: str
    token: str | None = None
    ca_file: Path | None = None
    ahead: int = AHEAD


def destination(address: str, token_file: Path | None, ca_file: Path | None) -> Destination:
    """A server elsewhere, and who says so."""
    token = None
    if token_file is not None:
        token = token_file.read_text().strip()
        if not token:
            raise click.BadParameter(f"{token_file} is empty; it should hold a token.", param_hint="--token-file")
    return Destination(address, token, ca_file)


def name_over(name_by_content: str) -> str:
    """The name of the producer for exactly this content on a connection, where large deltas make other writes."""
    return name_by_content.replace("send_", "send_w1_", 1)


class Sending:
    """A file on its way: each chunk is one write, and the answers are added up."""

    def __init__(self, client: Client, ahead: int) -> None:
        self._client, self._ahead = client, ahead
        self._sent: deque[Sent] = deque()
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.epochs: dict[int, set[int]] = {}
        self.note = ""  # what keeps it waiting

    def send(self, chunk: Any) -> Iterator[None]:
        """Send one write; yields while it waits, so that progress can be shown."""
        self._sent.append(self._client.send(chunk))
        self.counts.update(writes=1, deltas=len(self._sent[-1]))
        # The first one alone: its acknowledgement names the first epoch.
        while len(self._sent) >= (1 if self.counts["writes"] == 1 else self._ahead):
            yield from self._answered(self._sent.popleft())

    def finish(self) -> Iterator[None]:
        """Wait for every answer."""
        while self._sent:
            yield from self._answered(self._sent.popleft())

    def _answered(self, sent: Sent) -> Iterator[None]:
        while True:
            try:
                outcome = sent.wait(Reached.FLUSHED, LOOK_S)
                break
            except NotYetError:
                self.note = self._client.stats.state
                yield
        self.note = ""
        self.counts.update(
            accepted=outcome.accepted,
            duplicate=outcome.duplicate,
            refused=outcome.refused,
            sent_before=outcome.taken_earlier,
        )
        self.reasons.update(refusal.reason for refusal in outcome.refusals)
        self.reasons.update({NOT_NAMED: outcome.refused - len(outcome.refusals)})
        for shard, epoch in sent.epochs.items():
            self.epochs.setdefault(shard, set()).add(epoch)


@contextmanager
def sending(to: Destination, producer: str, *, is_numbered_on: bool) -> Iterator[Sending]:
    """A connection for a file; its producer is numbered from the file's start, or on from its last write."""
    client = connect(
        to.address,
        producer=producer,
        token=to.token,
        rows=CHUNK,
        bytes=WRITE_BYTES,
        memory_bytes=8 * CHUNK_BYTES,
        compress=True,
        from_start=not is_numbered_on,
        whole_calls=True,
        ssl=None if to.ca_file is None else ssl.create_default_context(cafile=str(to.ca_file)),
    )
    try:
        if not client.wait_connected(CONNECT_S):
            raise ClientError(f"There was no answer within {CONNECT_S:g} s: {client.stats.state}.")
        yield Sending(client, to.ahead)
    except RefusedError as error:
        raise ClientError(f"{error} What was acknowledged before is kept; send the file again to go on.") from error
    finally:
        client.close(0.0)
