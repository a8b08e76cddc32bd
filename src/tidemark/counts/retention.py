"""Retention of rollups: what was dropped, what may be dropped, and which questions then have no answer (R5).

Belongs here: the rule, as pure functions, and the small file that remembers what was decided. Weeks are kept for ever:
with them `all` stays right. Of minutes, hours and days the old ones may go, finer ones first, each at a border of the
next coarser tier, so that every coarser bucket is either whole above finer ones or settled for ever. Does not belong
here: raising `earliest_event_ts` and the drop itself (`orchestration/retain.py`).

Tiers that no trailing count is made of are kept for ever, too. What they are the sum of stays on the disk until they
are whole (`to_be_dropped`), also where questions are not answered from it any more.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from tidemark.counts.decay import HalfLife
from tidemark.counts.windows import Window, shown, window_pieces
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.storage.json_files import read_json, write_json
from tidemark.tables.tiers import TRAILING, Tier

# What may go, finest first, and the tier on whose borders it is cut.
CUT_AT = dict(pairwise(TRAILING))
LONGEST_US = max(window.length_us for window in Window if window.length_us is not None)
# A reader may still ask about the last few minutes, and a clock may be behind.
STILL_ASKED_US = HOUR_US

_TIER_OF = {tier.table: tier for tier in Tier}

# Tier → buckets that start before this are gone.
Cuts = dict[Tier, int]


class RetentionError(TidemarkError):
    """A drop was requested that must not happen."""


class GoneError(TidemarkError):
    """A count was requested that needs dropped buckets."""


class _Kept(Struct, frozen=True, omit_defaults=True):
    gone_before_us: dict[Tier, int] = {}
    # An earlier version did not write it: it dropped all that is gone.
    dropped_before_us: dict[Tier, int] = {}


def gone_before(home: Home) -> Cuts:
    """What no question is answered from any more; nothing while nothing was dropped."""
    return dict(_read(home).gone_before_us)


def dropped_before(home: Home) -> Cuts:
    """What was dropped from the tables of a home, or is about to be."""
    kept = _read(home)
    return {**kept.gone_before_us, **kept.dropped_before_us}


def remember(home: Home, cuts: Cuts) -> None:
    """Decide, durably, before anything is dropped: from now on nobody asks for it or computes it again."""
    write_json(_path(home), _Kept(dict(sorted(cuts.items())), to_be_dropped(cuts, dropped_before(home))))


def to_be_dropped(cuts: Cuts, dropped: Cuts) -> Cuts:
    """What goes from the tables when this much is gone: for each tier the time before which its buckets are dropped.

    A bucket goes when all that is made of it is settled. The week and the month that hold a day do not end together: so
    the days of the month that holds a cut stay, until a later cut lies behind that month. What was dropped stays so.
    """
    found = {tier: min(coarser.floor(cut_us) for coarser in tier.made_of_it) for tier, cut_us in cuts.items()}
    return {tier: max(found[tier], dropped.get(tier, found[tier])) for tier in CUT_AT if tier in found}


def _read(home: Home) -> _Kept:
    return read_json(_path(home), _Kept, way_out="Restore it from a backup; nothing was changed.") or _Kept()


def latest_cuts(now_us: int, half_lives: Iterable[HalfLife] = ()) -> Cuts:
    """How far each tier may be dropped: no window and no score as of now or later needs anything before."""
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
    """The cuts once `wanted` was dropped: for each tier the time before which no bucket of it is kept.

    A coarser tier takes the finer ones with it. Dropped buckets do not come back, so a cut never moves to an earlier
    time. Refused while a window or a score could still need it as of now or later.
    """
    for tier, before_us in wanted.items():
        grid = CUT_AT.get(tier)
        if grid is None:
            raise RetentionError(f"{tier.capitalize()}s are never dropped: the window {Window.ALL} is made of them.")
        if grid.floor(before_us) != before_us:
            raise RetentionError(
                f"{tier.capitalize()}s are dropped in whole {grid}s, and {shown(before_us)} is not the start of one. "
                f"Drop {tier}s before {shown(grid.floor(before_us))} or {shown(grid.ceil(before_us))}."
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
    """Partitions of a table that start before this are final: not computed and not checked again. None: there are none.

    They were dropped themselves, or their inputs were: computed again they would be empty.
    """
    tier = _TIER_OF.get(table)
    return settled(tier, gone_before(home), dropped_before(home)) if tier else None


def settled(tier: Tier, gone: Mapping[Tier, int], dropped: Mapping[Tier, int]) -> int | None:
    """The same, where it is known what is gone, and what was dropped.

    Buckets that no trailing count is made of are settled when what they are the sum of was dropped, and not before.
    """
    return (gone if tier.is_trailing else dropped).get(tier.made_from or tier)


def refuse_gone(window: Window, as_of_us: int, gone: Mapping[Tier, int]) -> None:
    """Raise if a window as of a time needs a bucket that was dropped."""
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
