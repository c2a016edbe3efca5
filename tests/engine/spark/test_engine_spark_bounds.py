"""Spark skips parts of files by their bounds, and loses no row."""

from __future__ import annotations

import math
from datetime import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medusa.engine.spark.session import Spark
from medusa.engine.streams.parquet import write_parquet
from medusa.overlay.errors import InternalError

pytestmark = pytest.mark.spark


def test_nan_and_negative_zero_are_found_in_what_we_write(spark: Spark, tmp_path: Path) -> None:
    rows = pa.table({"stime": [1, 2, 3], "x": [1.0, math.nan, -0.0]})
    write_parquet(rows, tmp_path / "x.parquet")

    def stimes(where: str) -> list[int]:
        file = str(tmp_path / "x.parquet")
        found = spark.run(lambda session: session.read.parquet(file).where(where).collect())
        return [row.stime for row in found]

    assert stimes("x > 5") == [2]
    assert stimes("x = 0") == [3]


def test_spark_loses_nan_by_the_bounds_of_others(spark: Spark, tmp_path: Path) -> None:
    """docs/posting.md says this of Spark 4.3."""
    file = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"x": [1.0, math.nan]}), file)
    found = spark.run(lambda session: session.read.parquet(file).where("x > 5").collect())
    assert found == []


@pytest.mark.parametrize("values", [[time(1)], pa.array([b"0" * 16], pa.uuid())])
def test_spark_does_not_read_types_that_no_field_has(
    spark: Spark, tmp_path: Path, values: object
) -> None:
    file = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"n": [1], "x": values}), file)
    with pytest.raises(InternalError, match=r"TIME is not supported|Illegal Parquet type"):
        spark.run(lambda session: session.read.parquet(file).select("n").collect())
