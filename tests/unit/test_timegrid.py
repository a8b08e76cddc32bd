from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tidemark.model.timegrid import (
    DAY_US,
    HOUR_US,
    WEEK_US,
    floor_to,
    floor_to_week,
    from_us,
    hour_key,
    hour_start,
    to_us,
    week_key,
    week_start,
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
    start = floor_to_week(to_us(moment))
    assert start <= to_us(moment) < start + WEEK_US
    assert from_us(start).weekday() == 0
    assert start % DAY_US == 0


@given(moments)
def test_partition_keys_are_read_back_as_the_bucket_they_name(moment: datetime) -> None:
    assert hour_start(hour_key(to_us(moment))) == floor_to(to_us(moment), HOUR_US)
    assert week_start(week_key(to_us(moment))) == floor_to_week(to_us(moment))
