"""How many connections there may be: in all, with the same token, and of those that have not said who they are (W3).

Belongs here: counting, and who has to go. Nothing here knows sockets: a connection is any value that can be a key.

Those that have not said hello have places of their own, so that a flood of them takes none from others. When these are
full, the newest comes in and the oldest goes, of the address that has most of them. A hello takes milliseconds, so it
is not the honest who have waited longest; and a flood from one address only pushes out itself.
"""

from collections import Counter
from typing import Generic, TypeVar

from tidemark.gateway.access.tokens import AccessError
from tidemark.model.settings import ServeSettings
from tidemark.wire.errors import NackReason

C = TypeVar("C")


class TooManyConnectionsError(AccessError):
    """There is no place for another connection now."""

    reason = NackReason.TOO_MANY_CONNECTIONS


class ConnectionLimits(Generic[C]):
    """The connections of a door, and how many more may come."""

    def __init__(self, serve: ServeSettings) -> None:
        self._serve = serve
        self._waiting: dict[C, str] = {}  # those that have not said hello → their address; the oldest first
        self._by_address: Counter[str] = Counter()
        self._present: dict[C, str | None] = {}  # those that have → the id of their token
        self._by_token: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Those that have not said who they are."""
        return len(self._waiting)

    @property
    def present(self) -> int:
        """Those that have."""
        return len(self._present)

    def opened(self, connection: C, address: str) -> C | None:
        """Count a connection that has said nothing yet; returns the one that has to be closed for it, if any.

        That one is counted no more.
        """
        self._waiting[connection] = address
        self._by_address[address] += 1
        if len(self._waiting) <= self._serve.unauthenticated_connections:
            return None
        most = max(self._by_address.values())
        oldest = next(each for each, its in self._waiting.items() if self._by_address[its] == most)
        self.closed(oldest)
        return oldest

    def greeted(self, connection: C, token_id: str | None) -> None:
        """Count it with its token from now on; raises if there are too many, and then it may only be closed.

        None is for whoever needs no token: for them only the places in all are counted.
        """
        if len(self._present) >= self._serve.connections:
            raise TooManyConnectionsError(
                f"The server has {self._serve.connections:,} connections, which is its bound. Try again later; its "
                "operator can raise [serve] connections."
            )
        if token_id is not None and self._by_token[token_id] >= self._serve.connections_per_token:
            raise TooManyConnectionsError(
                f"This token has {self._serve.connections_per_token:,} connections, which is the bound of each. Close "
                "some; the operator can raise [serve] connections_per_token."
            )
        self.closed(connection)
        self._present[connection] = token_id
        if token_id is not None:
            self._by_token[token_id] += 1

    def closed(self, connection: C) -> None:
        """Count it no more; that it was counted at all is not needed."""
        if connection in self._waiting:
            _count_down(self._by_address, self._waiting.pop(connection))
        elif connection in self._present and (token_id := self._present.pop(connection)) is not None:
            _count_down(self._by_token, token_id)


def _count_down(counter: Counter[str], key: str) -> None:
    """Names that have nothing are forgotten: there is no end of addresses."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
