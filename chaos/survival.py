"""What a power cut may leave of changes that were not synced.

Belongs here: the possible outcomes, and how one of them decides on a name, a size or a sector. The uncertain changes
are in `nodes.py`.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from random import Random
from typing import NamedTuple, TypeVar

# When something changed: the number of the change, and within a write the number of the sector. Nothing is older
# than the synced state.
Time = tuple[int, int]
SYNCED: Time = (0, 0)

T = TypeVar("T")
# The possible sizes or contents of a sector: the synced one first, then later ones, in order of time.
Options = Sequence[tuple[Time, T]]


class Survival(StrEnum):
    """What survives. Synced data survives in every one of them; they differ in the rest."""

    CACHE = "cache"  # all, but nothing more of it is synced: only the process died, and the machine went on
    NOTHING = "nothing"
    EVERYTHING = "everything"
    NAMES = "names"  # names, but neither data nor sizes: a new file is there and empty
    SIZES = "sizes"  # names and sizes, but no data: a new file is there and full of zeros
    DATA = "data"  # data and sizes, but no names: new files are gone, and removed or renamed ones are back
    PREFIX = "prefix"  # changes before some time, as if the disk kept the order; a write may be cut there
    SUFFIX = "suffix"  # changes after some time, without earlier ones
    RANDOM = "random"  # each name, each size and each sector as it was at some time since the last sync


class Fate(NamedTuple):
    """One possible outcome."""

    keeps_name: Callable[[Time], bool]
    size: Callable[[Options[int]], int]
    sector: Callable[[Options[bytes]], bytes]


def fate_of(mode: Survival, random: Random, times: Sequence[Time]) -> Fate:
    """The fate of all unsynced changes, in any mode but CACHE; `times` are those of all these changes."""
    match mode:
        case Survival.PREFIX:
            return _prefix(_time(random, times))
        case Survival.SUFFIX:
            return _suffix(_time(random, times))
        case Survival.RANDOM:
            return _tossed(random)
    return _FIXED[mode]


def _time(random: Random, times: Sequence[Time]) -> Time:
    """Choose a change, then a sector of it: otherwise the time would nearly always be within the longest write."""
    chosen = random.choice(sorted({number for number, _ in (SYNCED, *times)}))
    return random.choice([time for time in (SYNCED, *times) if time[0] == chosen])


def _prefix(end: Time) -> Fate:
    def latest(options: Options[T]) -> T:
        return [value for time, value in options if time <= end][-1]

    return Fate(lambda time: time <= end, latest, latest)


def _suffix(begin: Time) -> Fate:
    def latest(options: Options[T]) -> T:
        return _last(options) if options[-1][0] > begin else _first(options)

    return Fate(lambda time: time > begin, latest, latest)


def _tossed(random: Random) -> Fate:
    def toss(options: Options[T]) -> T:
        return random.choice(options)[1]

    # Half of the names is rarely the worst case: all but one, or only one of them, often is.
    share = random.choice((0.1, 0.5, 0.9))
    return Fate(lambda _: random.random() < share, toss, toss)


def _first(options: Options[T]) -> T:
    return options[0][1]


def _last(options: Options[T]) -> T:
    return options[-1][1]


def _always(_: Time) -> bool:
    return True


def _never(_: Time) -> bool:
    return False


_FIXED = {
    Survival.NOTHING: Fate(_never, _first, _first),
    Survival.EVERYTHING: Fate(_always, _last, _last),
    Survival.NAMES: Fate(_always, _first, _first),
    Survival.SIZES: Fate(_always, _last, _first),
    Survival.DATA: Fate(_never, _last, _last),
}
