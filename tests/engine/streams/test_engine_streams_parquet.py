"""Rows as Parquet: readers that skip by bounds find NaN and negative zero, too."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from medusa.engine.streams.parquet import open_parquet, write_parquet

ROWS = pa.table({"stime": [1, 2, 3], "x": [1.0, math.nan, -0.0], "s": ["a", "b", None]})


def test_only_stime_has_bounds_and_floats_have_no_dictionary(tmp_path: Path) -> None:
    write_parquet(ROWS, tmp_path / "x.parquet")
    group = pq.read_metadata(tmp_path / "x.parquet").row_group(0)
    stime, x, text = map(group.column, range(3))
    assert (stime.statistics.min, stime.statistics.max) == (1, 3)
    assert x.statistics is None
    assert not x.has_dictionary_page
    assert text.statistics is None
    assert text.has_dictionary_page


def test_rows_without_stime_have_no_bounds(tmp_path: Path) -> None:
    with open_parquet(tmp_path / "x.parquet", ROWS.drop("stime").schema, compress=True) as writer:
        writer.write_table(ROWS.drop("stime"))
    column = pq.read_metadata(tmp_path / "x.parquet").row_group(0).column(0)
    assert column.statistics is None
    assert column.compression == "ZSTD"


def test_duckdb_finds_nan(tmp_path: Path) -> None:
    write_parquet(ROWS, tmp_path / "x.parquet")
    asked = "select count(*) from read_parquet(?) where x > 5"
    with duckdb.connect() as database:
        assert database.execute(asked, [str(tmp_path / "x.parquet")]).fetchall() == [(1,)]
