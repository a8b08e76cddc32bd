"""Numbers become SVG: the few kinds of plot that the report has, all of one look.

Belongs here: the marks and the palette. Does not belong here: the choice of plots and their text (`exhibits.py`). Drawn
by Vega-Lite inside this process: no browser, no network, and text stays text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from orchestration.report.figures import Lag
from orchestration.report.timeline import Timeline
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US, WEEK_US


@dataclass(frozen=True)
class Tone:
    """One colour: as it is drawn, and its form on a dark page."""

    name: str
    light: str
    dark: str


INK = Tone("ink", "#24313c", "#dfe6ec")
MUTED = Tone("muted", "#5d6b78", "#9aa8b5")
GRID = Tone("grid", "#e2e7eb", "#2e3a45")
SEA = Tone("sea", "#2c7da0", "#58aed1")
SAND = Tone("sand", "#d9973b", "#e3ac5b")
CORAL = Tone("coral", "#c2513f", "#e27d6b")
MOSS = Tone("moss", "#5c8d5a", "#86b684")
PLUM = Tone("plum", "#7f68a6", "#aa95cd")
TEAL = Tone("teal", "#40a49a", "#6fcabf")
STONE = Tone("stone", "#98a4ae", "#7d8a95")
PALETTE = (INK, MUTED, GRID, SEA, SAND, CORAL, MOSS, PLUM, TEAL, STONE)
# In this order for series without a meaning of their own. Neighbours differ in brightness, not only in hue.
SERIES = (SEA, SAND, PLUM, TEAL, CORAL, MOSS, STONE)

WIDE, NARROW = 1040, 500
# Names at the left of a plot, in pixels: the width of one letter, and of all of them at most.
CHARACTER, NAME_LIMIT = 7.6, 190
FONT = "system-ui, sans-serif"
_NAMESPACES = re.compile(r' xmlns(:xlink)?="[^"]*"')


def bars_over_time(
    timeline: Timeline,
    tones: Mapping[str, Tone],
    *,
    unit: str,
    width: int = WIDE,
    height: int = 250,
    has_legend: bool = True,
) -> str:
    """Stacked bars, one for each bucket; series in the order of `tones`, which may name missing series."""
    order = list(tones)
    rows = [
        {
            "start": start / 1_000,
            "end": (start + timeline.width_us) / 1_000,
            "series": name,
            "place": order.index(name),
            "number": number,
        }
        for (start, name), number in timeline.buckets.items()
    ]
    chart = (
        _chart(rows)
        # A pixel between bars, if they are wide enough, so that equal neighbours can be told apart.
        .mark_bar(orient="vertical", x2Offset=-1 if width > 6 * timeline.length else 0)
        .encode(
            x=alt.X("start:T", title=None, scale=alt.Scale(type="utc"), axis=_time_axis(timeline.width_us)),
            x2="end:T",
            y=alt.Y("number:Q", title=unit, stack="zero", axis=_number_axis(timeline.totals.values())),
            color=_series_colour(
                {name: tones[name] for name in order if name in timeline.series()}, has_legend=has_legend
            ),
            order="place:O",
        )
    )
    return _svg(chart, width, height)


def ranked_bars(numbers: Mapping[str, int], tones: Mapping[str, Tone], *, width: int = NARROW) -> str:
    """One horizontal bar per name, in the given order, with its number at its end."""
    base = _labelled(numbers).encode(
        # Room for the number of the longest bar.
        x=alt.X("number:Q", axis=None, scale=alt.Scale(domain=[0, 1.18 * max(numbers.values(), default=1) or 1])),
        y=alt.Y("name:N", title=None, sort=None, axis=_name_axis(numbers)),
    )
    colour = _series_colour({name: tones[name] for name in numbers}, field="name", has_legend=False)
    text = base.mark_text(align="left", dx=5, color=INK.light, fontSize=12).encode(text="label:N")
    return _svg(base.mark_bar(size=15).encode(color=colour) + text, width, 23 * len(numbers) + 14)


def ranges(numbers: Mapping[str, int], tones: Mapping[str, Tone], *, unit: str) -> str:
    """A vertical bar per range, with its number on top."""
    base = _labelled(numbers).encode(
        x=alt.X("name:N", title=None, sort=None, axis=alt.Axis(labelAngle=-35, ticks=False, minExtent=64)),
        y=alt.Y("number:Q", title=unit, axis=_number_axis(numbers.values())),
    )
    colour = _series_colour({name: tones[name] for name in numbers}, field="name", has_legend=False)
    text = base.mark_text(dy=-7, color=MUTED.light, fontSize=10.5).encode(text="label:N")
    return _svg(base.mark_bar(size=26).encode(color=colour) + text, NARROW, 290)


def lag_over_time(lag: Lag, tones: Mapping[str, Tone]) -> str:
    """A line per stream through its median, and above it a shade up to the 95th percentile."""
    unit, unit_us = unit_for(max((point.p95_us for point in lag.points), default=0))
    rows = [
        {
            "middle": (point.start_us + lag.width_us / 2) / 1_000,
            "stream": point.stream,
            "median": point.median_us / unit_us,
            "p95": point.p95_us / unit_us,
        }
        for point in lag.points
    ]
    base = _chart(rows).encode(
        x=alt.X("middle:T", title=None, scale=alt.Scale(type="utc"), axis=_time_axis(lag.width_us)),
        color=_series_colour(tones, field="stream"),
    )
    y = alt.Y("median:Q", title=unit, axis=alt.Axis(tickCount=5, titlePadding=10))
    shade = base.mark_area(opacity=0.16).encode(y=y, y2="p95:Q")
    # A point as well: a stream with a single value has no line.
    line = base.mark_line(strokeWidth=1.8, point=alt.OverlayMarkDef(size=9, opacity=1)).encode(y=y)
    return _svg(shade + line, WIDE, 260)


def share_bars(shares: Mapping[str, Mapping[str, int]], tones: Mapping[str, Tone]) -> str:
    """One horizontal bar of full length per name, divided by the shares of its parts."""
    rows = [
        {"name": name, "series": series, "place": list(tones).index(series), "number": number}
        for name, parts in shares.items()
        for series, number in parts.items()
        if number
    ]
    chart = (
        _chart(rows)
        .mark_bar(size=15)
        .encode(
            x=alt.X("number:Q", title=None, stack="normalize", axis=alt.Axis(format="%", grid=False, tickCount=4)),
            y=alt.Y("name:N", title=None, sort=None, axis=_name_axis(shares)),
            color=_series_colour(tones),
            order="place:O",
        )
    )
    return _svg(chart, WIDE, 26 * len(shares) + 62)


def unit_for(longest_us: int) -> tuple[str, int]:
    """The unit in which the longest of some durations is easy to read."""
    for name, unit_us in (("days", DAY_US), ("hours", HOUR_US), ("minutes", MINUTE_US)):
        if longest_us >= 2 * unit_us:
            return name, unit_us
    return "seconds", SECOND_US


def tones_of(names: Sequence[str]) -> dict[str, Tone]:
    """A colour for each of some names."""
    return {name: SERIES[place % len(SERIES)] for place, name in enumerate(names)}


def _chart(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]  # of all of altair, only this has no types


def _labelled(numbers: Mapping[str, int]) -> alt.Chart:
    return _chart([{"name": name, "number": number, "label": f"{number:,}"} for name, number in numbers.items()])


def _series_colour(tones: Mapping[str, Tone], *, field: str = "series", has_legend: bool = True) -> alt.Color:
    return alt.Color(
        f"{field}:N",
        title=None,
        scale=alt.Scale(domain=list(tones), range=[tone.light for tone in tones.values()]),
        legend=alt.Legend(orient="top", symbolType="square", symbolOpacity=1, labelLimit=220) if has_legend else None,
    )


def _number_axis(numbers: Iterable[int]) -> alt.Axis:
    """Whole numbers; large ones short, as 200k and 6M."""
    is_large = max(map(abs, numbers), default=0) >= 100_000
    return alt.Axis(format="~s" if is_large else ",.0f", tickMinStep=1, tickCount=5, titlePadding=10)


def _time_axis(width_us: int) -> alt.Axis:
    """Labels of 24 hours, with the date where a day begins; of long times only dates."""
    spaced: dict[str, Any] = {"grid": False, "labelOverlap": "greedy", "labelSeparation": 10}
    if width_us >= DAY_US:
        return alt.Axis(**spaced, format="%b %Y" if width_us >= WEEK_US else "%-d %b")
    moment = "utchours(datum.value) || utcminutes(datum.value) ? '%H:%M' : '%-d %b'"
    return alt.Axis(**spaced, labelExpr=f"utcFormat(datum.value, {moment})")


def _name_axis(names: Iterable[str]) -> alt.Axis:
    """Names at the left, with room for the longest: a page's own font may be wider than the one measured with."""
    longest = max((len(name) for name in names), default=0)
    extent = min(NAME_LIMIT, CHARACTER * longest)
    return alt.Axis(
        domain=False,
        ticks=False,
        labelFontSize=12,
        labelLimit=NAME_LIMIT,
        labelPadding=6,
        minExtent=extent,
        maxExtent=extent,
    )


def _svg(chart: alt.Chart | alt.LayerChart, width: int, height: int) -> str:
    spec: dict[str, Any] = chart.properties(width=width, height=height).to_dict()
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    spec["config"] = {
        # The page describes each plot in words; hundreds of labelled bars would only slow a screen reader.
        "aria": False,
        "background": "transparent",
        "font": FONT,
        "padding": 4,
        "view": {"stroke": None},
        "axis": {
            "labelColor": MUTED.light,
            "titleColor": MUTED.light,
            "titleFontWeight": "normal",
            "gridColor": GRID.light,
            "domainColor": GRID.light,
            "tickColor": GRID.light,
            "labelFontSize": 11,
            "titleFontSize": 11,
        },
        "legend": {"labelColor": INK.light, "labelFontSize": 12, "symbolSize": 90, "columnPadding": 18, "offset": 8},
    }
    # An empty list: nothing may be fetched while drawing, whatever a value looks like.
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    # Inside HTML the namespaces go without saying, and the page shall not name any address.
    return _NAMESPACES.sub("", svg, count=2)
