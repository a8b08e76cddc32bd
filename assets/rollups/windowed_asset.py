"""The asset `windowed_counts`: every entity's trailing windows as of one minute.

Belongs here: which minute, which versions of the tiers, and whether they may be relied on. The table is as of one time
and is replaced whole. It follows the clock and not its inputs: a late delta re-runs the buckets that hold it, and shows
here at the next hour (decision 0016).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg
from pydantic import Field

from assets.records import Writing
from assets.rollups.records import input_watermark, windowed_record
from assets.rollups.schema import TRAILING_COUNTS, WINDOWED_COUNTS
from assets.rollups.windowed import count_windows, spans_of
from assets.table_asset import asset_of
from assets.trust import refuse_any
from assets.watermarks import input_watermarks, record_watermarks
from resources.lake import LakeError
from resources.platform import TidemarkResource
from resources.record import Record
from tidemark.counts.decay import HalfLife, half_life
from tidemark.counts.retention import LONGEST_US, GoneError, gone_before
from tidemark.counts.tables import Tables
from tidemark.counts.windows import on_a_minute, shown
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import MINUTE, to_us
from tidemark.shard_state.clock_reset import ceiling_us
from tidemark.storage.failpoints import failpoint
from tidemark.tables.tiers import TRAILING, Tier

# The tables that it is made from.
NAMES = [spec.name for spec in TRAILING_COUNTS.values()]
# Enough to see where to look.
NAMED = 3


class MomentError(TidemarkError):
    """The requested time cannot be used, or there is no time to use yet."""


class BehindError(TidemarkError):
    """A needed bucket is not the sum of the finer buckets as they are now."""


class WindowedConfig(dg.Config):
    """What a run may be asked for."""

    as_of: str = Field(
        default="",
        description="As of when: a minute in UTC, such as 2026-03-02T10:37Z. Empty means the last minute that the "
        "watermark of the inputs has passed: nothing that happened before it is still expected.",
    )


@asset_of(WINDOWED_COUNTS, group="rollups", deps=map(dg.AssetDep, NAMES))
def windowed_counts(
    context: dg.AssetExecutionContext, config: WindowedConfig, tidemark: TidemarkResource
) -> dg.MaterializeResult[None]:
    """Read one snapshot of the tiers, sum up the buckets, replace the table, and return one record."""
    lake, spec, run = tidemark.lake, WINDOWED_COUNTS, Writing(context, tidemark.lake, tidemark.now_us)
    half_lives = [half_life(name) for name in lake.home.settings.counts.half_lives]
    with lake.lock(spec.name):
        marks = input_watermarks(lake.home.plans, NAMES)
        tables = Tables(lake.home, gone_before(lake.home))
        inputs = {name: Record.latest_by_partition(context.instance, name) for name in NAMES}
        as_of_us = chosen_moment(
            config.as_of, input_watermark(inputs.values(), ceiling_us(lake.home, tidemark.now_us()))
        )
        refuse_any(context.instance, lake, spec.name, *NAMES)
        refuse_unreliable(tables, gone_before(lake.home), as_of_us, half_lives)
        lake.settle(spec)
        tiers = {tier: lake.read(table.name, tables.versions[table.name]) for tier, table in TRAILING_COUNTS.items()}
        rows = count_windows(tiers, as_of_us=as_of_us, half_lives=half_lives)
        lake.replace(spec, rows.sort(*spec.order_by, "signal"), hours=None)
    failpoint("rollup.committed")
    cuts = {tier: spans_of(tier, as_of_us, half_lives).values() for tier in TRAILING}
    spans = {tier: [span for cut in of_tier for span in cut] for tier, of_tier in cuts.items()}
    record = windowed_record(run, inputs, tables, spans, as_of_us=as_of_us)
    record_watermarks(lake.home.plans, [record], marks)
    failpoint("record.logged")
    return dg.MaterializeResult(metadata={"as_of": shown(as_of_us), **record.to_metadata()})


def chosen_moment(text: str, watermark_us: int | None) -> int:
    """The requested minute; without a request, the last one that the watermark has passed."""
    if not text:
        if watermark_us is None:
            raise MomentError(
                "Nobody has promised anything about time yet, so there is no last minute to count up to. Send and drain"
                " something, or say which minute is meant: as_of: '2026-03-02T10:37Z'."
            )
        return MINUTE.floor(watermark_us)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise MomentError(f"{text!r} is no moment. Write a minute in UTC, such as 2026-03-02T10:37Z.") from error
    if moment.tzinfo is None:
        raise MomentError(f"{text!r} does not say in which time zone. Write it in UTC, with a Z at its end: {text}Z.")
    return on_a_minute(to_us(moment.astimezone(UTC)))


def refuse_unreliable(tables: Tables, gone: Mapping[Tier, int], as_of_us: int, half_lives: Sequence[HalfLife]) -> None:
    """Raise if a needed bucket was dropped, is missing, or is not the sum of the finer buckets as they are now."""
    if missing := [name for name in NAMES if name not in tables.versions]:
        raise LakeError(f"There is no table {missing[0]} yet. Drain first: ./tidemark drain.")
    if gone and as_of_us < max(gone.values()) + LONGEST_US:
        raise GoneError(
            f"Some buckets that the windows need as of {shown(as_of_us)} were dropped. Every window can be asked as of "
            f"{shown(max(gone.values()) + LONGEST_US)} and later."
        )
    for each in half_lives:
        for tier, span in each.spans(as_of_us):
            if span.start_us is not None and span.start_us < gone.get(tier, span.start_us):
                raise GoneError(
                    f"The half-life {each.name} needs {tier}s from {shown(span.start_us)} on, and those before "
                    f"{shown(gone[tier])} were dropped. Leave it out of [counts] half_lives in platform.toml."
                )
    for tier in TRAILING[1:]:
        needed = [span for cut in spans_of(tier, as_of_us, half_lives).values() for span in cut]
        behind = sorted(start for start in tables.behind[tier] if any(span.holds(start) for span in needed))
        if behind:
            spec = TRAILING_COUNTS[tier]
            named = ", ".join(spec.grain.key(start) for start in behind[-NAMED:])
            raise BehindError(
                f"{len(behind)} partition(s) of {spec.name} are behind their input ({named}), so that counts as of "
                f"{shown(as_of_us)} would not be exact. Refresh them first: ./tidemark drain; the daemon does it too."
            )
