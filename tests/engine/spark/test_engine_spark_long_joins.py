"""Joins with a long right side run in little memory, also with few left tuples over a long past."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Join, JoinKind, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.operators.join.spark import HASHED_BYTES
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs

pytestmark = pytest.mark.spark

LEFT, RIGHT, OUT = "medusa://a/left", "medusa://a/right", "medusa://a/out"
FIELDS: Final = (Field("x", FieldType.LONG), Field("text", FieldType.STRING))
ROWS: Final = 1_000_000
TEXTS: Final = tuple(str(n) * 400 for n in range(7))
"""Rows of few long texts: a row takes some bytes in a file, and hundreds of bytes in a hash map."""


STEP: Final = 1_000
"""One of each `STEP` rows of the right side has a partner."""


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


KEYS: Final = 5_000
PAST: Final = 200_000


def past(*, deletes: bool) -> pa.Table:
    """Return a tuple of a random key at each stime; some delete their key."""
    rng = np.random.default_rng(5)
    key = rng.integers(0, KEYS, PAST)
    columns = {"stime": np.arange(PAST), "x": key, "y": rng.integers(0, 1 << 40, PAST)}
    if deletes:
        columns["deleted"] = rng.random(PAST) < 0.3
    return pa.table(columns)


def few() -> pa.Table:
    """Return tuples of the last part of that time; some have keys that `past` lacks, or no key."""
    rng = np.random.default_rng(6)
    keys = pa.array(rng.integers(-50, KEYS, 500), mask=rng.random(500) < 0.1)
    stimes = np.sort(rng.integers(PAST - 1_000, PAST, 500))
    return pa.table({"stime": stimes, "x": keys, "z": rng.integers(0, 9, 500)})


NEWEST: Final = """
    SELECT l.stime, l.x, l.z, r.y FROM l ASOF LEFT JOIN r ON r.x = l.x AND r.stime <= l.stime"""
VALID: Final = f"SELECT * FROM ({NEWEST.replace('r.y', 'if(r.deleted, NULL, r.y) AS y')})"


@pytest.mark.parametrize(
    ("kind", "table", "right_answer"),
    [
        (JoinKind.LEFT_ASOF, False, NEWEST),
        (JoinKind.ASOF, False, f"SELECT * FROM ({NEWEST}) WHERE y IS NOT NULL"),
        (JoinKind.LEFT, True, VALID),
        (JoinKind.INNER, True, f"{VALID} WHERE y IS NOT NULL"),
        (JoinKind.SEMI, True, f"SELECT stime, x, z FROM ({VALID}) WHERE y IS NOT NULL"),
        (JoinKind.ANTI, True, f"SELECT stime, x, z FROM ({VALID}) WHERE y IS NULL"),
    ],
)
def test_few_tuples_meet_a_long_past(
    spark: Spark, tmp_path: Path, kind: JoinKind, table: bool, right_answer: str
) -> None:
    tables = {LEFT: few(), RIGHT: past(deletes=table)}
    files = {name: [tmp_path / f"{n}.parquet"] for n, name in enumerate(tables)}
    for name, rows in tables.items():
        pq.write_table(rows, files[name][0])
    assert files[RIGHT][0].stat().st_size > HASHED_BYTES > files[LEFT][0].stat().st_size
    joined = joined_by(kind, table=table)
    after = PAST - 1_001
    interval = needs(joined, after, PAST, 0)
    assert interval is not None
    made = spark.run(lambda session: Program(joined).run(session, files, after, PAST, interval))
    with duckdb.connect() as database:
        database.register("l", tables[LEFT])
        database.register("r", tables[RIGHT])
        right = database.sql(right_answer).to_arrow_table()
    assert right.num_rows > 40
    assert rows_of(made.table) == rows_of(right)


def joined_by(kind: JoinKind, *, table: bool) -> Task:
    """Return the join of the two sources on x, as a task."""
    alone = kind in {JoinKind.SEMI, JoinKind.ANTI}
    outputs = [("x", "left.x"), ("z", "left.z"), *([] if alone else [("y", "right.y")])]
    box = Join(
        "join",
        LEFT,
        RIGHT,
        OUT,
        kind,
        0 if table else PAST,
        0,
        "left.x = right.x",
        tuple(outputs),
        table,
    )
    long = FieldType.LONG
    deleted = [Field("deleted", FieldType.BOOL)] if table else []
    given = {
        LEFT: Schema(LEFT, (Field("x", long, nullable=True), Field("z", long))),
        RIGHT: Schema(
            RIGHT, (Field("x", long), Field("y", long), *deleted), key=("x",) if table else ()
        ),
    }
    query = Query("medusa://a/query", (box,))
    (made,) = plan(query, {**given, **check_query(query, given)})
    return made


def rows_of(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
