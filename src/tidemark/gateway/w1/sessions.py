"""What a connection is after its hello: the two roles, as the connection sees them.

Belongs here: the interface. `producing.py` and `subscribing.py` fill it in.
"""

from typing import Protocol

from tidemark.wire.frames import Frame


class Session(Protocol):
    """One side of a conversation. Everything is called on the loop of the door."""

    @property
    def is_blocked(self) -> bool:
        """Whether no further frame may be given to it now; it calls `Connection.go_on` when that has changed."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the peer: the connection may be closed without loss."""

    def take(self, frame: Frame) -> None:
        """Do what a frame says. Its payload counts until this returns."""

    def frames_taken(self) -> None:
        """All frames that have arrived so far were taken."""

    def close(self) -> None:
        """The connection has ended."""
