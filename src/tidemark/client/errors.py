"""What can go wrong between a program and a server, each with what the program needs to go on.

Belongs here: the errors of this package. What the server says of a frame is a `Nack` (`wire/messages.py`).
"""

from pathlib import Path

from tidemark.model.errors import DamageError, TidemarkError
from tidemark.wire.messages import Nack


class ClientError(TidemarkError):
    """Any error of the client."""


class AddressError(ClientError):
    """An address that cannot be understood."""

    def __init__(self, address: str, why: str) -> None:
        self.address = address
        super().__init__(
            f"{address!r} is no address of a server: {why}. Write tidemark://host:7433, tidemarks://host:7433 (TLS) "
            "or unix:/path/to/w1.sock."
        )


class NackedError(ClientError):
    """The server did not take a frame; `nack` is what it says of it."""

    def __init__(self, nack: Nack) -> None:
        self.nack = nack
        super().__init__(f"{nack.message} ({nack.reason})")


class ConnectionLostError(ClientError):
    """The connection has ended. What was not acknowledged on it may have been taken or not.

    `nack` is what the server said before it ended the connection, if it did.
    """

    def __init__(self, why: str, nack: Nack | None = None) -> None:
        self.why, self.nack = why, nack
        super().__init__(
            f"The connection has ended: {why}. What was not acknowledged may have been taken: connect again, and send "
            "it under the same numbers."
        )


class RefusedError(ClientError):
    """The server refuses for good what was sent, or to speak with this client at all; `nack` says why."""

    def __init__(self, nack: Nack) -> None:
        self.nack = nack
        super().__init__(f"The server refuses: {nack.message} ({nack.reason})")


class FencedError(ClientError):
    """Another program has taken the producer over; this one must stop."""

    def __init__(self, producer: str, why: str) -> None:
        self.producer = producer
        super().__init__(
            f"Producer {producer!r} now belongs to another program: {why} Stop one of the two, or give this one a name "
            "of its own. What is not acknowledged here is kept: take_back() returns it."
        )


class ServerLostDataError(ClientError):
    """The server no longer has writes that it had acknowledged: it was probably restored from an older copy."""

    def __init__(self, producer: str, acknowledged: int, mark: int) -> None:
        self.producer, self.acknowledged, self.mark = producer, acknowledged, mark
        super().__init__(
            f"The server acknowledged writes up to {acknowledged} of producer {producer!r}, and now has only those up "
            f"to {mark}: writes {mark + 1} to {acknowledged} are lost there, and are no longer here. Ask its operator. "
            "To go on, send what was lost again from its source: take_back() returns what is not acknowledged, and a "
            "client with a new spool numbers on from the server's last write."
        )


class WrongServerError(ClientError):
    """The spool belongs to another platform."""

    def __init__(self, spooled: str, found: str) -> None:
        self.spooled, self.found = spooled, found
        super().__init__(
            f"This spool was begun for platform {spooled!r}, and the server is platform {found!r}: its numbers mean "
            "other writes. Correct the address, or use another spool for that platform."
        )


class ClientFullError(ClientError):
    """There is no room for more unacknowledged deltas; nothing of this call was taken."""

    def __init__(self, waiting: int, limit: int, seconds: float) -> None:
        self.waiting, self.limit = waiting, limit
        super().__init__(
            f"{waiting:,} of {limit:,} bytes wait for the server's acknowledgement, and no room came within "
            f"{seconds:g} s. Nothing of this call was taken: send it again later, or wait longer."
        )


class TooLargeError(ClientError):
    """A delta that does not fit into one write; nothing of this call was taken."""


class EncodingError(ClientError):
    """Something that cannot be sent as deltas; nothing of this call was taken."""


class ClientClosedError(ClientError):
    """The client was closed."""

    def __init__(self, what: str = "This client was closed, and takes nothing more. Connect again.") -> None:
        super().__init__(what)


class NotSentError(ClientError):
    """A client without a spool was closed before everything was acknowledged."""


class ForkedError(ClientError):
    """The client belongs to the process that this one was forked from."""

    def __init__(self) -> None:
        super().__init__(
            "This client was made before the process forked, and belongs to the parent, which goes on with it. "
            "Connect again in the child, with a producer and a spool of its own."
        )


class NotYetError(ClientError):
    """A level was not reached in time; the deltas are kept, and may be waited for again."""

    def __init__(self, level: str, seconds: float, state: str) -> None:
        self.level, self.seconds = level, seconds
        super().__init__(
            f"Not {level} within {seconds:g} s ({state}). The deltas are kept and sent as soon as possible: wait again."
        )


class TakenBackError(ClientError):
    """The deltas were taken back before the server acknowledged them."""

    def __init__(self) -> None:
        super().__init__(
            "These deltas were taken back before they were acknowledged. Parts that were on their way may have arrived."
        )


class SpoolError(ClientError):
    """The spool cannot be used as it stands."""


class SpoolBusyError(SpoolError):
    """Another client has the spool."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"Spool {path} is in use by another client. A spool has one client at a time: stop that one, or use "
            "another directory."
        )


class SpoolDamageError(SpoolError, DamageError):
    """A file of the spool is damaged at a place where no crash can have torn it."""
