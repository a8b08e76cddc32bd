"""The error about a definition that cannot be used.

Belongs here: the one kind of error that loading raises. Its message names the file and the line, says what is wrong
there, and what to write instead.
"""

from pathlib import Path

from tidemark.model.errors import ConfigurationError


class StreamError(ConfigurationError):
    """A definition of a stream or a join is not usable as it stands."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        self.path, self.line = path, line
        super().__init__(f"{path}:{line}: {problem}")
