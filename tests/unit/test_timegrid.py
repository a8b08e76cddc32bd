from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.model.timegrid import (
    DAY_US,
    GRAINS,
    HOUR_US,
    MONTH,
    WEEK,
    WEEK_US,
    Grain,
    floor_to,
    from_us,
    hour_key,
    hour_start,
    to_us,
)

moments = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the strategy adds the zone


@given(moments)
def test_a_moment_survives_the_way_to_microseconds_and_back(moment: datetime) -> None:
    assert from_us(to_us(moment)) == moment


@given(moments)
def test_a_bucket_holds_its_moment_before_1970_too(moment: datetime) -> None:
    start = floor_to(to_us(moment), HOUR_US)
    assert start <= to_us(moment) < start + HOUR_US
    assert from_us(start) == moment.replace(minute=0, second=0, microsecond=0)


@given(moments)
def test_weeks_start_on_monday_at_midnight(moment: datetime) -> None:
    start = WEEK.floor(to_us(moment))
    assert start <= to_us(moment) < start + WEEK_US
    assert from_us(start).weekday() == 0
    assert start % DAY_US == 0


@given(moments)
def test_partition_keys_are_read_back_as_the_bucket_they_name(moment: datetime) -> None:
    assert hour_start(hour_key(to_us(moment))) == floor_to(to_us(moment), HOUR_US)
    assert WEEK.start(WEEK.key(to_us(moment))) == WEEK.floor(to_us(moment))


def midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


# What begins a bucket and what ends it, as `datetime` says it: by the parts of a date, and not by microseconds.
FLOORS: dict[str, Callable[[datetime], datetime]] = {
    "minute": lambda moment: moment.replace(second=0, microsecond=0),
    "hour": lambda moment: moment.replace(minute=0, second=0, microsecond=0),
    "day": midnight,
    "week": lambda moment: midnight(moment) - timedelta(days=moment.weekday()),
    "month": lambda moment: midnight(moment).replace(day=1),
}
ENDS: dict[str, Callable[[datetime], datetime]] = {
    "minute": lambda start: start + timedelta(minutes=1),
    "hour": lambda start: start + timedelta(hours=1),
    "day": lambda start: start + timedelta(days=1),
    "week": lambda start: start + timedelta(days=7),
    "month": lambda start: start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1),
}
grains = pytest.mark.parametrize("grain", GRAINS.values(), ids=GRAINS)


@grains
@given(moments)
@example(datetime(1970, 1, 1, tzinfo=UTC))
@example(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
@example(datetime(2024, 2, 29, 12, tzinfo=UTC))
@example(datetime(1900, 2, 28, 23, 59, 59, tzinfo=UTC))  # no leap year
@example(datetime(2000, 3, 1, tzinfo=UTC))  # one
@example(datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
@example(datetime(2027, 1, 1, tzinfo=UTC))
def test_a_grain_begins_and_ends_where_the_calendar_says(grain: Grain, moment: datetime) -> None:
    start = FLOORS[grain.name](moment)
    end = ENDS[grain.name](start)
    assert from_us(grain.floor(to_us(moment))) == start
    assert from_us(grain.next(to_us(moment))) == end
    assert grain.width_us(to_us(moment)) == (end - start) // timedelta(microseconds=1)
    assert from_us(grain.ceil(to_us(moment))) == (start if moment == start else end)
    assert grain.start(grain.key(to_us(moment))) == to_us(start)


@grains
@given(moments, st.integers(0, 90), st.integers(-1, 1), st.integers(-1, 1))
def test_the_starts_of_a_range_are_those_of_all_that_hold_any_of_it(
    grain: Grain, moment: datetime, count: int, early_us: int, late_us: int
) -> None:
    ends = [FLOORS[grain.name](moment)]
    for _ in range(count):
        ends.append(ENDS[grain.name](ends[-1]))
    first, last = to_us(ends[0]) + early_us, to_us(ends[-1]) + late_us
    one_by_one, start = [], grain.floor(first)
    while start < last and first < last:
        one_by_one.append(start)
        start = grain.next(start)
    assert list(grain.starts(first, last)) == one_by_one
    if early_us == late_us == 0:
        assert one_by_one == [to_us(each) for each in ends[:-1]]
        assert count <= grain.reach(last - first)


def test_months_have_as_many_days_as_the_calendar_says() -> None:
    starts = MONTH.starts(to_us(datetime(2023, 12, 15, tzinfo=UTC)), to_us(datetime(2025, 1, 1, tzinfo=UTC)))
    assert [MONTH.width_us(start) // DAY_US for start in starts] == [31, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    assert [MONTH.key(start) for start in starts][:3] == ["2023-12-01", "2024-01-01", "2024-02-01"]
