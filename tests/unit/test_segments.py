"""A segment is read back as the rows of the log, and its entry counts what is in it."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, sample, signal, vector
from tidemark.event_time.watermarks import Watermarks
from tidemark.log import segments
from tidemark.log.log_rows import LogRows
from tidemark.log.manifest import HourCounts, SourceHours
from tidemark.log.segments import Census, encode_segment, read_segment, whole
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.model.settings import Settings
from tidemark.model.timegrid import HOUR_US, hour_key, to_us
from tidemark.verdicts.arrival import Arrivals, NumberedWrite
from tidemark.verdicts.identities import Identities

SETTINGS = Settings(recent_identities=100)


def rows_of_log(numbers: list[int], epochs: list[int]) -> list[LogRows]:
    """One write for each number: signals over some hours, of which some are copies and some are refused."""
    arrivals = Arrivals(0, SETTINGS, Watermarks(SETTINGS), Identities(100))
    groups = []
    for place, (number, epoch) in enumerate(zip(numbers, epochs, strict=True)):
        deltas = [
            signal(f"d{number}", at=TEN_O_CLOCK - number * HOUR_US // 2),
            sample(f"d{number}", 1.0, at=TEN_O_CLOCK),
            vector(f"d{number}", "create", values=[1.0, 2.0], metadata={"a": None}),
            signal("", at=TEN_O_CLOCK),
            signal("x", event_ts="2099-01-01T00:00:00Z"),
        ]
        producer = ["web", "till"][number % 2]
        write = NumberedWrite(epoch, producer, place + 1, TEN_O_CLOCK + place * HOUR_US, deltas[: number % 5 + 1])
        groups.append(arrivals.decide([write])[0])
    return groups


numbers_strategy = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@given(numbers_strategy)
def test_a_segment_is_read_back_with_the_types_and_values_of_the_log(numbers: list[int]) -> None:
    groups = rows_of_log(numbers, list(range(1, len(numbers) + 1)))
    table = pa.Table.from_batches([rows.batch() for rows in groups])
    found = read_segment(pa.BufferReader(encode_segment(groups)))
    assert found.schema.equals(LOG_SCHEMA)
    assert found.equals(table)


def test_a_segment_of_several_parts_is_read_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_ROWS_TOGETHER", 4)
    groups = rows_of_log([4, 0, 0, 7, 9, 1], list(range(1, 7)))
    found = pq.ParquetFile(pa.BufferReader(encode_segment(groups)))
    assert found.num_row_groups == 4
    assert whole(found.read()).equals(pa.Table.from_batches([rows.batch() for rows in groups]))


@given(numbers_strategy, st.integers(1, 3), st.data())
def test_an_entry_counts_what_a_look_at_every_row_would(numbers: list[int], first: int, data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(1, 3), min_size=len(numbers), max_size=len(numbers)))
    epochs = [first + sum(steps[:place]) for place in range(1, len(numbers) + 1)]
    groups = rows_of_log(numbers, epochs)
    census = Census(groups)
    rows = [row for group in groups for row in group.batch().to_pylist()]
    assert census.rows == len(rows)
    assert census.to_epoch == epochs[-1] + 1
    lost = set(range(first, epochs[-1])) - set(epochs)
    assert {epoch for begin, end in census.gaps(first) for epoch in range(begin, end)} == lost
    by_verdict = Counter(row["verdict"] for row in rows)
    assert census.verdicts() == HourCounts(**by_verdict)
    for column in ("event_ts", "received_ts", "watermark_ts"):
        expected: dict[str, Counter[str]] = {}
        for row in rows:
            is_usable = row[column] is not None and (column == "received_ts" or row["verdict"] != "refused")
            key = hour_key(to_us(row[column])) if is_usable else ""
            expected.setdefault(key, Counter())[row["verdict"]] += 1
        assert census.by_hour(column) == {key: HourCounts(**counts) for key, counts in sorted(expected.items())}
    by_source: dict[str, dict[str, set[str]]] = {}
    for row in (row for row in rows if row["verdict"] == "accepted"):
        hours = by_source.setdefault(
            f"{row['namespace']}/{row['kind']}", {"event": set(), "receipt": set(), "stamp": set()}
        )
        for name, column in (("event", "event_ts"), ("receipt", "received_ts"), ("stamp", "watermark_ts")):
            hours[name] |= {hour_key(to_us(row[column]))} if row[column] else set()
    assert census.by_source() == {
        source: SourceHours(**{name: sorted(keys) for name, keys in hours.items()})
        for source, hours in by_source.items()
    }
    for producer, (least, greatest) in census.sequences().items():
        sequences = [row["sequence"] for row in rows if row["producer"] == producer]
        assert (least, greatest) == (min(sequences), max(sequences))
    assert set(census.sequences()) == {row["producer"] for row in rows}
