"""Spark and a reader without it must find a vector in the same bucket."""

from typing import TYPE_CHECKING

from tidemark.vectors.tables import BUCKET_SQL, bucket_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_puts_a_vector_where_a_reader_looks_for_it(spark: "SparkSession") -> None:
    keys = [("shop", f"item-{number}") for number in range(50)] + [
        ("fleet", "häuser/ñ"),
        ("a", "水"),
        ("a", "\U0001f30a"),
    ]
    rows = spark.createDataFrame(keys, "namespace string, vector_id string").selectExpr("*", BUCKET_SQL).collect()
    assert [row[2] for row in rows] == [bucket_of(row[0], row[1]) for row in rows]
