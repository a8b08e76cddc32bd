"""Admission at this door, and the account of what it turns away (A1 to A4).

Belongs here: asking the gate, and counting. The decision itself is in `tidemark/admission/`.
"""

from collections import Counter
from typing import Protocol

from tidemark.gateway.write_frames import Content
from tidemark.model.deltas import Priority
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Nack


class Admitting(Protocol):
    """Who may send, and what was turned away."""

    def decide(self, producer: str, priority: Priority, content: Content, size: int) -> Nack | None:
        """Why a write may not be taken now; None if it may. What is refused is counted."""

    def turned_away(self, reason: NackReason, producer: str, deltas: int) -> None:
        """Count deltas that were turned away before they were numbered (A3)."""


class Everybody:
    """Without configuration there is no SLA (A2)."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def decide(self, producer: str, priority: Priority, content: Content, size: int) -> Nack | None:  # noqa: ARG002 - the protocol's signature
        """Everything may be taken."""
        return None

    def turned_away(self, reason: NackReason, producer: str, deltas: int) -> None:
        """Count deltas that were turned away before they were numbered (A3)."""
        self.counts[reason, producer] += deltas
