"""Calls whose answers are added up: how a source is sent from its beginning to its end.

Belongs here: how many writes are on their way, and the sums. Where the deltas come from is the caller's.
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from tidemark.client.batches import Reached
from tidemark.client.client import Client
from tidemark.client.errors import NotYetError
from tidemark.client.handles import Sent

# How often what waits is looked at, so that it can be shown.
LOOK_S = 0.5
NOT_NAMED = "(not named by the server)"


class Tally:
    """What is sent, and what became of it."""

    def __init__(self, client: Client, ahead: int) -> None:
        self._client, self._ahead = client, ahead
        self._sent: deque[Sent] = deque()
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.epochs: dict[int, set[int]] = {}
        self.note = ""  # what keeps it waiting

    def send(self, chunk: Any) -> Iterator[None]:
        """Send the deltas of one call; yields while it waits, so that progress can be shown."""
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
