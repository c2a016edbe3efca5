"""Joins of more rows than a hash map of them would find memory for."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.language.check import check_query
from engine.objects.query import Join, JoinKind, Query
from engine.objects.schema import Field, FieldType, Schema
from engine.spark.program import Program
from engine.spark.session import Spark
from engine.tasks.plan import Task, plan
from engine.tasks.windows import needs

pytestmark = pytest.mark.spark

LEFT, RIGHT, OUT = "medusa://a/left", "medusa://a/right", "medusa://a/out"
FIELDS: Final = (Field("x", FieldType.LONG), Field("text", FieldType.STRING))
ROWS: Final = 1_000_000
TEXTS: Final = tuple(str(n) * 400 for n in range(7))
"""Rows of few long texts: some bytes each in a file, and hundreds in a hash map."""


STEP: Final = 1_000
"""Of so many rows one has a partner."""


def task() -> Task:
    outputs = (("x", "left.x"), ("y", "right.text"))
    box = Join("join", LEFT, RIGHT, OUT, JoinKind.INNER, ROWS, 0, "left.x = right.x", outputs)
    given = {name: Schema(name, FIELDS) for name in (LEFT, RIGHT)}
    query = Query("medusa://a/query", (box,))
    (made,) = plan(query, {**given, **check_query(query, given)})
    return made


def write(path: Path, numbers: range) -> list[Path]:
    whole = np.asarray(numbers)
    texts = pa.array(TEXTS).take(pa.array(whole % len(TEXTS)))
    pq.write_table(pa.table({"stime": whole, "x": whole, "text": texts}), path)
    return [path]


def test_a_long_right_side_is_joined_with_the_memory_of_a_small_peer(
    spark: Spark, tmp_path: Path
) -> None:
    left = write(tmp_path / "left.parquet", range(0, ROWS, STEP))
    right = write(tmp_path / "right.parquet", range(ROWS))
    assert left[0].stat().st_size + right[0].stat().st_size < 16 * 2**20
    joined = task()
    interval = needs(joined, -1, ROWS, 0)
    assert interval is not None
    files = {LEFT: left, RIGHT: right}
    made = spark.run(lambda session: Program(joined).run(session, files, -1, ROWS, interval))
    assert made.table.column("x").to_pylist() == list(range(0, ROWS, STEP))
    assert made.table.column("y").to_pylist() == [TEXTS[x % 7] for x in range(0, ROWS, STEP)]
