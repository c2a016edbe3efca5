"""Rows by their order: vectorised, and as plain Python would have it."""

from __future__ import annotations

import time

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from engine.streams.ordering import repeated


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 4))))
def test_rows_are_repeated_as_often_as_is_said(rows: list[tuple[int, int]]) -> None:
    table = pa.table({"value": pa.array([value for value, _ in rows], pa.int64())})
    times = pa.chunked_array([pa.array([times for _, times in rows], pa.int64())])
    expected = [value for value, times in rows for _ in range(times)]
    assert repeated(table, times).column("value").to_pylist() == expected


def test_one_row_a_million_times_takes_no_loop() -> None:
    began = time.process_time()
    table = repeated(pa.table({"value": [7]}), pa.chunked_array([[10**6]]))
    assert table.num_rows == 10**6
    assert time.process_time() - began < 1.0
