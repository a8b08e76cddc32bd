"""The root of every error that Tidemark raises on purpose.

Belongs here: the base class and the two kinds that every part shares. A part's own kinds live beside the part.
"""


class TidemarkError(Exception):
    """An error whose message says what was wrong and what to do about it."""


class ConfigurationError(TidemarkError):
    """A setting, a file of settings or a home directory is not usable as it stands."""


class DamageError(TidemarkError):
    """Stored bytes differ from those written: nothing is read past them, and nothing is repaired by guessing."""
