"""Scans of epoch files."""

from __future__ import annotations

from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql import types as T


def reader_of(session: SparkSession, rows: T.StructType) -> DataFrameReader:
    """Spark's reader of files with these rows."""
    return (
        session.read.schema(rows)
        .option("__globPaths__", "false")  # a name may hold [ or *
        .option("recursiveFileLookup", "true")  # a folder a=b is not a partition
    )
