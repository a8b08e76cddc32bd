"""The name of a series: the fingerprint of its sorted labels (D7).

Belongs here: the fingerprint, and the memory that distinguishes a collision from a series seen before.
"""

import hashlib
from collections.abc import Callable, Sequence

Labels = Sequence[tuple[str, str]]

# Remembered label sets; beyond this the memory is cleared. A series costs a few hundred bytes here.
REMEMBERED_SERIES = 200_000


def fingerprint_of(labels: Labels) -> str:
    """128 bits of BLAKE2b over the labels, each text after its length, so that no two sets give the same bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for pair in labels:
        for text in pair:
            encoded = text.encode()
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


class SeriesNames:
    """Fingerprints of label sets; on a hit the labels are compared, so two series are never merged by accident."""

    def __init__(self, fingerprint: Callable[[Labels], str] = fingerprint_of) -> None:
        self._fingerprint = fingerprint
        self._by_labels: dict[tuple[tuple[str, str], ...], str] = {}
        self._by_fingerprint: dict[str, tuple[tuple[str, str], ...]] = {}

    def fingerprint(self, labels: Labels) -> str:
        """The series' name; labels must be sorted."""
        known = tuple(labels)
        found = self._by_labels.get(known)
        if found is None:
            if len(self._by_labels) >= REMEMBERED_SERIES:
                self._by_labels.clear()
                self._by_fingerprint.clear()
            found = self._by_labels[known] = self._fingerprint(known)
            self._by_fingerprint.setdefault(found, known)
        return found

    def collides(self, labels: Labels, fingerprint: str) -> bool:
        """Whether another label set is known under this fingerprint."""
        return self._by_fingerprint.get(fingerprint, tuple(labels)) != tuple(labels)
