"""What of the rollups was dropped, what may be dropped, and what can then no longer be asked (R5).

Belongs here: the rule, as pure functions, and the small file that remembers what was decided. Weeks are kept for ever:
with them `all` stays right. Of minutes, hours and days the old ones may go, finer ones first, each at a border of the
next coarser tier, so that every coarser bucket is either whole above finer ones or settled for ever. Does not belong
here: raising `earliest_event_ts` and the drop itself (`orchestration/retain.py`).
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from resources.coordinator.disk import Disk, RealDisk
from resources.counters.windows import Tier, Window, shown, window_pieces
from resources.errors import DamageError, TidemarkError
from resources.home import Home
from resources.timegrid import HOUR_US

# What may go, finest first, and the tier on whose borders it is cut.
CUT_AT = {Tier.MINUTE: Tier.HOUR, Tier.HOUR: Tier.DAY, Tier.DAY: Tier.WEEK}
LONGEST_US = max(window.length_us for window in Window if window.length_us is not None)
# Whoever asks now may ask about the last few minutes, and a clock may be behind.
STILL_ASKED_US = HOUR_US

# Tier → buckets that start before this are gone.
Cuts = dict[Tier, int]


class RetentionError(TidemarkError):
    """Something is to be dropped that must not be."""


class GoneError(TidemarkError):
    """A count was asked for that needs buckets which were dropped."""


class _Kept(Struct, frozen=True):
    gone_before_us: dict[str, int] = {}


def gone_before(home: Home) -> Cuts:
    """What was dropped in a home, or is about to be; nothing while nothing was."""
    path = _path(home)
    if not path.exists():
        return {}
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Kept)
        return {Tier(tier): cut_us for tier, cut_us in found.gone_before_us.items()}
    except (msgspec.MsgspecError, ValueError) as error:
        raise DamageError(f"{path} is damaged ({error}). Restore it from a backup; nothing was changed.") from error


def remember(home: Home, cuts: Cuts, disk: Disk | None = None) -> None:
    """Decide, durably, before anything is dropped: from now on nobody asks for it or computes it again."""
    disk = disk or RealDisk()
    disk.make_directory(_path(home).parent)
    disk.replace(_path(home), msgspec.json.encode(_Kept({str(tier): cut_us for tier, cut_us in sorted(cuts.items())})))


def decide_cuts(wanted: Mapping[Tier, int], gone: Mapping[Tier, int], now_us: int) -> Cuts:
    """What is gone once `wanted` was dropped: for each tier the time before which no bucket of it is kept.

    A coarser tier takes the finer ones with it. What is gone does not come back, so a cut never moves to an earlier
    time. Refused while a window could need it that somebody asks for from now on.
    """
    latest_us = now_us - LONGEST_US - STILL_ASKED_US
    for tier, before_us in wanted.items():
        grid = CUT_AT.get(tier)
        if grid is None:
            raise RetentionError(f"Of {tier}s nothing is dropped: the window {Window.ALL} is made of them.")
        if grid.floor(before_us) != before_us:
            raise RetentionError(
                f"{tier.capitalize()}s are dropped in whole {grid}s, and {shown(before_us)} is not the start of one. "
                f"Drop what is before {shown(grid.floor(before_us))} or {shown(grid.ceil(before_us))}."
            )
        if before_us > latest_us:
            raise RetentionError(
                f"The window {Window.MONTH} still needs {tier}s before {shown(before_us)}, also as of now. Drop what "
                f"is before {shown(grid.floor(latest_us))}, or less."
            )
    cuts: Cuts = {}
    coarser_us: int | None = None
    for tier in reversed(CUT_AT):
        known = [cut_us for cut_us in (wanted.get(tier), gone.get(tier), coarser_us) if cut_us is not None]
        if known:
            # A cut of a coarser tier is on the borders of every finer one, too.
            cuts[tier] = coarser_us = max(known)
    return cuts


def refuse_gone(window: Window, as_of_us: int, gone: Mapping[Tier, int]) -> None:
    """Raise if a window as of a moment needs a bucket that was dropped."""
    for tier, span in window_pieces(window, as_of_us).by_tier():
        cut_us = gone.get(tier)
        if cut_us is not None and span.start_us is not None and span.start_us < cut_us:
            raise GoneError(
                f"The window {window} as of {shown(as_of_us)} needs {tier}s from {shown(span.start_us)} on, and those "
                f"before {shown(cut_us)} were dropped. Every window can be asked as of "
                f"{shown(max(gone.values()) + LONGEST_US)} and later."
            )


def _path(home: Home) -> Path:
    return home.plans / "retention.json"
