"""Tests of assets as a user would write them: a table of deltas in, a table of rows out."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestration.testing import TinyPlatform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_hours_are_sums_of_minutes(tmp_path: Path, spark: "SparkSession") -> None:
    platform = TinyPlatform(tmp_path)
    platform.given("""
        | event_ts             | signal.entity_id | signal.signal | signal.count |
        | 2026-03-02T10:05:00Z | item-1           | view          | 2            |
        | 2026-03-02T10:59:59Z | item-1           | view          | 3            |
        | 2026-03-02T11:00:00Z | item-1           | view          | 1            |
    """)
    platform.materialize("hourly_counts")
    expected = """
        | entity_id | bucket_start         | count | deltas |
        | item-1    | 2026-03-02T10:00:00Z | 5     | 2      |
        | item-1    | 2026-03-02T11:00:00Z | 1     | 1      |
    """
    platform.expect("hourly_counts", expected)
    with pytest.raises(AssertionError, match=r"hourly_counts has 2 row\(s\)"):
        platform.expect("hourly_counts", expected.replace("| 5 ", "| 6 "))
