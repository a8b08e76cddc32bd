"""What of the rollups was dropped, what may be dropped, and what can then no longer be asked (R5).

Belongs here: the rule, as pure functions, and the small file that remembers what was decided. Weeks are kept for ever:
with them `all` stays right. Of minutes, hours and days the old ones may go, finer ones first, each at a border of the
next coarser tier, so that every coarser bucket is either whole above finer ones or settled for ever. Does not belong
here: raising `earliest_event_ts` and the drop itself (`orchestration/retain.py`).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from tidemark.counts.decay import HalfLife
from tidemark.counts.windows import Tier, Window, shown, window_pieces
from tidemark.model.errors import DamageError, TidemarkError
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.disk import Disk, RealDisk
from tidemark.storage.home import Home

# What may go, finest first, and the tier on whose borders it is cut.
CUT_AT = {Tier.MINUTE: Tier.HOUR, Tier.HOUR: Tier.DAY, Tier.DAY: Tier.WEEK}
LONGEST_US = max(window.length_us for window in Window if window.length_us is not None)
# Whoever asks now may ask about the last few minutes, and a clock may be behind.
STILL_ASKED_US = HOUR_US

# Each rollup, and the finest tier that it is or is made of.
_FINEST_NEEDED = {
    "minute_counts": Tier.MINUTE,
    "hourly_counts": Tier.MINUTE,
    "daily_counts": Tier.HOUR,
    "weekly_counts": Tier.DAY,
}

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


def latest_cuts(now_us: int, half_lives: Iterable[HalfLife] = ()) -> Cuts:
    """How far each tier may be dropped: up to here no window and no score needs it that is asked for from now on."""
    as_of_us = Tier.MINUTE.floor(now_us) - STILL_ASKED_US
    needed = dict.fromkeys(CUT_AT, as_of_us - LONGEST_US)
    for each in half_lives:
        for tier, span in each.spans(as_of_us):
            if tier in needed and span.start_us is not None:
                needed[tier] = min(needed[tier], span.start_us)
    latest: Cuts = {}
    for tier, grid in CUT_AT.items():
        # The finer ones go with it, so it may not go further than they may.
        latest[tier] = grid.floor(min([needed[tier], *latest.values()]))
    return latest


def decide_cuts(
    wanted: Mapping[Tier, int], gone: Mapping[Tier, int], now_us: int, half_lives: Iterable[HalfLife] = ()
) -> Cuts:
    """What is gone once `wanted` was dropped: for each tier the time before which no bucket of it is kept.

    A coarser tier takes the finer ones with it. What is gone does not come back, so a cut never moves to an earlier
    time. Refused while a window or a score could need it that somebody asks for from now on.
    """
    for tier, before_us in wanted.items():
        grid = CUT_AT.get(tier)
        if grid is None:
            raise RetentionError(f"Of {tier}s nothing is dropped: the window {Window.ALL} is made of them.")
        if grid.floor(before_us) != before_us:
            raise RetentionError(
                f"{tier.capitalize()}s are dropped in whole {grid}s, and {shown(before_us)} is not the start of one. "
                f"Drop what is before {shown(grid.floor(before_us))} or {shown(grid.ceil(before_us))}."
            )
    cuts: Cuts = {}
    coarser_us: int | None = None
    for tier in reversed(CUT_AT):
        known = [cut_us for cut_us in (wanted.get(tier), gone.get(tier), coarser_us) if cut_us is not None]
        if known:
            # A cut of a coarser tier is on the borders of every finer one, too.
            cuts[tier] = coarser_us = max(known)
    cuts, latest = {tier: cuts[tier] for tier in CUT_AT if tier in cuts}, latest_cuts(now_us, half_lives)
    for tier, cut_us in cuts.items():
        if cut_us > max(latest[tier], gone.get(tier, cut_us - 1)):
            raise RetentionError(
                f"A window or a half-life still needs {tier}s before {shown(cut_us)}, also as of now. Drop {tier}s "
                f"before {shown(latest[tier])} at most."
            )
    return cuts


def settled_before(home: Home, table: str) -> int | None:
    """Partitions of a table that start before this are not computed and not judged again; none: all may be.

    They were dropped themselves, or what they are the sum of was: computed again they would be empty.
    """
    tier = _FINEST_NEEDED.get(table)
    return gone_before(home).get(tier) if tier else None


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
