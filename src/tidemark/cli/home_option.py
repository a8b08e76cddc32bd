"""Which home a command line names, before anything is imported that could read it.

Belongs here: finding `--home` among the words. Nothing but the standard library is imported here.
"""

from collections.abc import Sequence


def home_in(arguments: Sequence[str]) -> str | None:
    """The home that is named, before the command or after it; the last one counts, as it does for click."""
    found = None
    for place, word in enumerate(arguments):
        if word == "--home" and place + 1 < len(arguments):
            found = arguments[place + 1]
        elif word.startswith("--home="):
            found = word.removeprefix("--home=")
    return found
