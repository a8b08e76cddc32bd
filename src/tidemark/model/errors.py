"""The root of every error that Tidemark raises on purpose.

Belongs here: the base class and the two kinds that every part shares. A part's own kinds live beside the part.
"""


class TidemarkError(Exception):
    """An error whose message says what was wrong and what to do about it."""


class ConfigurationError(TidemarkError):
    """A setting, a file of settings or a home directory is not usable as it stands."""


class StoppedError(KeyboardInterrupt):
    """A person or the system ends this process. It is no error of the work, so nothing that handles those takes it."""

    def __init__(self, signal: int = 2) -> None:
        super().__init__("stopped. Everything that was acknowledged is kept; the same command goes on from here.")
        # As shells report a process that a signal ended.
        self.exit_code = 128 + signal


class DamageError(TidemarkError):
    """Stored bytes differ from those written: nothing is read past them, and nothing is repaired by guessing."""
