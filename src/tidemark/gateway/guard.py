"""Who may come in, and who may stay (W10).

Belongs here: asking the tokens on behalf of a connection, and asking again while it stays. What a token is, is in
`tokens.py`.
"""

from tidemark.gateway.connection import Connection, NackedError
from tidemark.gateway.tokens import AccessError, Grant, Scopes, TokenStore
from tidemark.wire.errors import WireError
from tidemark.wire.messages import Hello, Nack

# Over the socket in the home: whoever can open it could open the log as well.
OWNER = Grant("owner", Scopes(is_admin=True))


class Guard:
    """The door's question to the tokens."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens
        self._grants: dict[Connection, Grant] = {}

    def opened(self, connection: Connection) -> WireError | None:  # noqa: ARG002 - limits will need it
        """Count a new connection; an error if there are too many."""
        return None

    def closed(self, connection: Connection) -> None:
        """It has ended."""
        self._grants.pop(connection, None)

    def admit(self, connection: Connection, hello: Hello) -> Grant:
        """What the peer may do; raises `NackedError`."""
        if connection.peer.is_local and hello.token is None:
            grant = OWNER
        else:
            try:
                grant = self._tokens.check(
                    hello.token,
                    is_loopback=connection.peer.is_loopback,
                    certificate=connection.peer.certificate_name,
                )
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
