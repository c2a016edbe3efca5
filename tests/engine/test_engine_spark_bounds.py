"""Spark skips parts of files by their bounds, and misses no row."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest

from engine.spark.session import Spark
from engine.streams.parquet import write_parquet

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
