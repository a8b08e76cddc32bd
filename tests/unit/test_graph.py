"""The graph of tables: which partitions are made of which, in both directions (N1, O3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.graph import By, Derived, Need, graph_of, made_of
from assets.ingest.schema import DELTAS
from assets.rollups.schema import COUNTS, MINUTE_COUNTS
from assets.windows.catalog import pane_needs
from assets.windows.schema import window_table
from tests.support.windows import Event, admitted_to, fixed, sliding, tumbling
from tidemark.model.ranges import Range, any_within
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, floor_to
from tidemark.streams import Lateness, LatePolicy, Stream
from tidemark.tables.table_spec import TableSpec
from tidemark.tables.tiers import Tier

MOMENTS = st.integers(-3 * HOUR_US, 3 * HOUR_US)
STEPS = st.sampled_from([5, 7, 10, 15, 50, 60, 90]).map(lambda minutes: minutes * MINUTE_US)
OFFSETS = st.integers(0, 89).map(lambda minutes: minutes * MINUTE_US)
STREAMS = st.one_of(
    st.builds(lambda size, offset: tumbling(size, offset_us=offset % size), STEPS, OFFSETS),
    st.builds(lambda size, offset: fixed(size, offset_us=offset % size), STEPS, OFFSETS),
    st.builds(lambda step, more, offset: sliding(step + more, step, offset_us=offset % step), STEPS, STEPS, OFFSETS),
    st.builds(
        lambda size, allowed, offset: tumbling(
            size, Lateness(LatePolicy.NEXT_WINDOW, allowed), offset_us=offset % size
        ),
        STEPS,
        STEPS,
        OFFSETS,
    ),
)


@given(of=STREAMS, at_us=MOMENTS, stamp_us=st.one_of(st.none(), MOMENTS), received_us=MOMENTS)
def test_every_pane_that_takes_a_delta_lies_in_a_partition_that_the_graph_says_is_made_of_it(
    of: Stream, at_us: int, stamp_us: int | None, received_us: int
) -> None:
    event = Event(at_us, stamp_us, received_us=received_us)
    times = {By.EVENT: at_us, By.RECEIPT: received_us, By.STAMP: stamp_us}
    touched = {
        own
        for need in pane_needs(of)
        if (time_us := times[need.by]) is not None
        for own in need.partitions_of(window_table(of), floor_to(time_us, HOUR_US), HOUR_US)
    }
    panes = {floor_to(start, HOUR_US) for start, _ in admitted_to(event, of)}
    assert panes <= touched


def test_what_fits_into_an_hour_touches_that_hour_alone() -> None:
    """A late delta re-runs what it touches and nothing else."""
    [need] = pane_needs(tumbling(10 * MINUTE_US))
    assert list(need.partitions_of(window_table(tumbling(MINUTE_US)), 5 * HOUR_US, HOUR_US)) == [5 * HOUR_US]
    [slides] = pane_needs(sliding(HOUR_US, 5 * MINUTE_US))
    spec = window_table(sliding(HOUR_US, 5 * MINUTE_US))
    assert list(slides.partitions_of(spec, 5 * HOUR_US, HOUR_US)) == [4 * HOUR_US, 5 * HOUR_US]
    assert list(slides.inputs_of(4 * HOUR_US, HOUR_US)) == [4 * HOUR_US, 5 * HOUR_US]


def test_a_day_is_made_of_its_hours() -> None:
    need = Need(COUNTS[Tier.HOUR])
    assert list(need.partitions_of(COUNTS[Tier.DAY], 25 * HOUR_US, HOUR_US)) == [DAY_US]
    assert len(need.inputs_of(DAY_US, DAY_US)) == 24


@given(
    source=st.sampled_from([DELTAS, COUNTS[Tier.HOUR], COUNTS[Tier.DAY]]),
    target=st.sampled_from([MINUTE_COUNTS, COUNTS[Tier.DAY], COUNTS[Tier.WEEK]]),
    before_us=st.sampled_from([0, 7 * MINUTE_US, HOUR_US, 26 * HOUR_US]),
    after_us=st.sampled_from([0, 7 * MINUTE_US, HOUR_US, 26 * HOUR_US]),
    at_us=st.integers(-9 * DAY_US, 9 * DAY_US),
    near=st.integers(-9, 9),
)
def test_both_directions_say_the_same(
    source: TableSpec, target: TableSpec, before_us: int, after_us: int, at_us: int, near: int
) -> None:
    """What a partition is made of, and what is made of a partition: what waits for it, and why."""
    need = Need(source, before_us=before_us, after_us=after_us)
    given = source.grain.floor(at_us)
    own = target.grain.floor(given + near * target.grain.width_us(given))
    assert (own in need.partitions_of(target, given, source.grain.width_us(given))) == (
        given in need.inputs_of(own, target.grain.width_us(own))
    )


def test_only_what_a_range_is_made_of_is_read() -> None:
    of = tumbling(10 * MINUTE_US, Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US))
    assert any_within(made_of(pane_needs(of), "deltas", [Range(0, HOUR_US)])) == (
        "(event_hour >= TIMESTAMP '1970-01-01 00:00:00.000000 UTC' AND "
        "event_hour < TIMESTAMP '1970-01-01 01:00:00.000000 UTC') OR "
        "(watermark_ts >= TIMESTAMP '1970-01-01 00:01:00.000000 UTC' AND "
        "watermark_ts < TIMESTAMP '1970-01-01 01:01:00.000000 UTC')"
    )
    assert any_within(made_of(pane_needs(of), "dead_letters", [Range(0, HOUR_US)])) == "false"


def test_tables_come_after_what_they_are_made_from_and_a_circle_is_refused() -> None:
    """T3: cycles are refused when definitions load."""
    minutes = Derived(MINUTE_COUNTS, (Need(DELTAS),))
    hours = Derived(COUNTS[Tier.HOUR], (Need(MINUTE_COUNTS),))
    assert list(graph_of([hours, minutes])) == ["minute_counts", "hourly_counts"]
    with pytest.raises(ValueError, match="in a circle: minute_counts, hourly_counts"):
        graph_of([Derived(MINUTE_COUNTS, (Need(COUNTS[Tier.HOUR]),)), hours])
