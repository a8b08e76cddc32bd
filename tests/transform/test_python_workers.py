"""Python workers take pyspark from plain files: an archive on their path would be read again before every task."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _said(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyspark

    archives = [known for known in sys.path_importer_cache if ".zip" in known or ".jar" in known]
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"archives": [archives], "pyspark": [pyspark.__file__]})


def test_no_archive_is_on_the_path_of_a_worker(spark: "SparkSession") -> None:
    import pyspark

    [said] = spark.range(0, 1, 1, 1).mapInArrow(_said, "archives array<string>, pyspark string").collect()
    assert said["archives"] == []
    assert said["pyspark"] == pyspark.__file__
