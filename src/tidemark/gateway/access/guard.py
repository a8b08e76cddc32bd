"""Who may come in, and who may stay (W3, W10).

Belongs here: asking the tokens and the limits on behalf of a connection, and asking again while it stays. What a token
is, is in `tokens.py`; how many connections there may be, in `connection_limits.py`.
"""

from typing import Protocol

from tidemark.gateway.access.connection_limits import ConnectionLimits
from tidemark.gateway.access.tokens import AccessError, Grant, Scopes, TokenStore
from tidemark.gateway.w1.connection import Connection, NackedError, Peer
from tidemark.model.settings import ServeSettings
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Hello, Nack

# Over the socket in the home: whoever can open it could open the log as well.
OWNER = Grant("owner", Scopes(is_admin=True))


class Stranger(Protocol):
    """A connection that has not said who it is."""

    peer: Peer

    def end(self, nack: Nack) -> None:
        """Say why, where that is possible, and close."""


class Guard:
    """The door's question to the tokens and the limits. The home's owner is not counted: the other doors are theirs."""

    def __init__(self, tokens: TokenStore, serve: ServeSettings) -> None:
        self._tokens = tokens
        self._limits: ConnectionLimits[Stranger] = ConnectionLimits(serve)
        self._grants: dict[Stranger, Grant] = {}

    def opened(self, connection: Stranger) -> None:
        """Count a new connection; one that has said nothing for long may have to go for it."""
        if connection.peer.is_local:
            return
        pushed_out = self._limits.opened(connection, connection.peer.address)
        if pushed_out is not None:
            why = "Too many connections wait to say hello, and this one has waited longest. Connect again, and say it."
            pushed_out.end(Nack(NackReason.TOO_MANY_CONNECTIONS, why, closes=True))

    def closed(self, connection: Stranger) -> None:
        """It has ended."""
        self._limits.closed(connection)
        self._grants.pop(connection, None)

    def admit(self, connection: Connection, hello: Hello) -> Grant:
        """What the peer may do; raises `NackedError`."""
        peer = connection.peer
        try:
            if peer.is_local and hello.token is None:
                grant = OWNER
            else:
                grant = self._tokens.check(hello.token, is_loopback=peer.is_loopback, certificate=peer.certificate_name)
            if not peer.is_local:
                self._limits.greeted(connection, grant.id)
        except AccessError as error:
            raise NackedError(Nack(error.reason, str(error), closes=True)) from error
        self._grants[connection] = grant
        return grant

    def look(self, connection: Connection) -> None:
        """End a connection whose token counts no more."""
        grant = self._grants.get(connection)
        if grant is None:
            return
        try:
            self._tokens.check_again(grant)
        except AccessError as error:
            connection.end(Nack(error.reason, str(error), closes=True))
