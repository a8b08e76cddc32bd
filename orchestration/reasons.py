"""What went wrong, in one line: from an error that the orchestrator stored, or from a failed check.

Belongs here: shortening messages. Does not belong here: finding them (`run_history.py`, `check_status.py`, `runs.py`).
Dagster is not imported.
"""

from collections.abc import Sequence
from typing import Protocol

# A line of `status`; the whole error is on the run's page.
LONGEST_REASON = 400
# Dagster's error for both signals.
INTERRUPTED = "DagsterExecutionInterruptedError"


class StoredError(Protocol):
    """What the orchestrator stores of an error."""

    @property
    def message(self) -> str: ...

    @property
    def stack(self) -> Sequence[str]: ...

    @property
    def cause(self) -> "StoredError | None": ...


def innermost(error: StoredError | None) -> StoredError | None:
    """The error that all others were raised from: it names the cause."""
    while error and error.cause:
        error = error.cause
    return error


def in_a_line(message: str, stack: Sequence[str]) -> str:
    """An error's class and the first line of its message; without a message, where it was raised."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if lines and INTERRUPTED in lines[0]:
        return "it was stopped by Ctrl-C or SIGTERM; the next run does its work"
    if not lines:
        lines = ["an error without a word"]
    kind, _, said = lines[0].partition(":")
    if not said.strip() and " " not in kind:
        place = " ".join(stack[-1].split()) if stack else ""
        said = lines[1] if len(lines) > 1 else f"it says no more; raised at {place}" if place else "it says no more"
        lines = [f"{kind}: {said}"]
    return shortened(lines[0])


def shortened(line: str) -> str:
    """A line, cut if it is too long to read."""
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"


def first_sentence(message: str) -> str:
    """What is wrong, without the examples: those are rows, and a status goes to places where rows should not go."""
    line = next(iter(message.strip().splitlines()), "")
    sentence, _, example = line.partition(", for example ")
    return sentence if example else line.partition(". ")[0]
