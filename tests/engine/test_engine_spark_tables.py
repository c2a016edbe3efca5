"""Joins with tables: as of the time of each tuple, whatever the cut, and however much of the table
was folded."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from epoch_networks import cuts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.language.check import check_query
from engine.objects.query import Filter, Join, JoinKind, Query
from engine.objects.schema import BEGINNING, DELETED, END, Field, FieldType, Schema
from engine.spark.program import Program
from engine.spark.session import Spark
from engine.streams.folding import newest
from engine.tasks.plan import Task, plan
from engine.tasks.windows import needs
from examples import examples
from testnet.simulation.interpreter import run_task

F = FieldType
STREAM = Schema("s", (Field("k", F.INT, nullable=True), Field("x", F.DOUBLE)))
TABLE = Schema(
    "t",
    (Field("k", F.INT), Field("v", F.LONG, nullable=True), Field(DELETED, F.BOOL, nullable=True)),
    key=("k",),
)
SCHEMAS = {"s": STREAM, "t": TABLE}

KINDS = {JoinKind.INNER: "JOIN", JoinKind.LEFT: "LEFT JOIN"} | {
    JoinKind.SEMI: "SEMI JOIN",
    JoinKind.ANTI: "ANTI JOIN",
}


def rows(draw: st.DrawFn, schema: Schema, more: Mapping[str, st.SearchStrategy[Any]]) -> pa.Table:
    row = st.fixed_dictionaries({"stime": st.integers(-20, 40), **more})
    found = sorted(draw(st.lists(row, max_size=25)), key=lambda each: each["stime"])
    numbered = [{**each, "seq": number} for number, each in enumerate(found)]
    return pa.Table.from_pylist(numbered, schema=schema.source)


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, pa.Table]:
    doubles = st.sampled_from([0.0, 0.5, -1.0])
    stream = rows(draw, STREAM, {"k": st.none() | st.integers(0, 3), "x": doubles})
    values = st.none() | st.integers(-2, 2)
    table = rows(
        draw,
        TABLE,
        {"k": st.integers(0, 3), "v": values, DELETED: st.sampled_from([None, None, False, True])},
    )
    return {"s": stream, "t": table}


@st.composite
def queries(draw: st.DrawFn) -> Query:
    kind = draw(st.sampled_from(sorted(KINDS)))
    condition = draw(st.sampled_from(["left.k = right.k", "left.k = right.v", "left.x < right.v"]))
    both = kind in {JoinKind.INNER, JoinKind.LEFT}
    fields = (("k", "left.k"), ("x", "left.x"), *((("v", "right.v"),) if both else ()))
    join = Join("j", "s", "t", "out", kind, 0, 0, condition, fields, table=True)
    if draw(st.booleans()):
        return Query("q", (join,))
    return Query("q", (join, Filter("f", "out", ("kept",), ("x >= 0",))))


def sql(query: Query) -> str:
    join = query.boxes[0]
    assert isinstance(join, Join)
    both = "" if join.kind in {JoinKind.SEMI, JoinKind.ANTI} else ", r.v"
    condition = join.predicate.replace("left.", "l.").replace("right.", "r.")
    valid = (
        f"(SELECT *, lead(stime, 1, {END}) OVER (PARTITION BY k ORDER BY stime, seq) AS until "
        "FROM t)"
    )
    found = (
        f"SELECT l.stime, l.k, l.x{both} FROM s l {KINDS[join.kind]} {valid} r ON {condition} "
        f"AND r.stime <= l.stime AND l.stime < r.until AND NOT coalesce(r.{DELETED}, false)"
    )
    return f"SELECT * FROM ({found})" + (" WHERE x >= 0" if len(query.boxes) > 1 else "")


def expected(query: Query, data: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        for name, table in data.items():
            database.register(name, table)
        return sorted(database.sql(sql(query)).fetchall(), key=repr)


def write(table: pa.Table, folder: Path, name: str, boundaries: Sequence[int]) -> list[Path]:
    paths = []
    for number, (after, upto) in enumerate(itertools.pairwise([BEGINNING, *boundaries])):
        stime = table["stime"]
        part = table.filter(pc.and_(pc.greater(stime, after), pc.less_equal(stime, upto)))
        if part.num_rows:
            paths.append(folder / f"{name}_{number}.parquet")
            pq.write_table(part, paths[-1])
    return paths


def folded_upto(table: pa.Table, boundary: int) -> pa.Table:
    """The table as its log is when all up to a boundary has been folded."""
    before = table.filter(pc.less_equal(table["stime"], boundary))
    after = table.filter(pc.greater(table["stime"], boundary))
    return pa.concat_tables([newest(before, TABLE.key), after])


def tasks_of(query: Query) -> tuple[Task, ...]:
    return plan(query, check_query(query, SCHEMAS))


@settings(
    max_examples=examples(12, soak=100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(query=queries(), data=inputs(), chosen=st.lists(cuts, min_size=1, max_size=3))
@pytest.mark.spark
def test_a_table_is_joined_as_of_each_tuple_whatever_is_cut_and_folded(
    spark: Spark, query: Query, data: dict[str, pa.Table], chosen: list[list[int]]
) -> None:
    (task,) = tasks_of(query)
    program, made = Program(task), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (after, upto) in enumerate(itertools.pairwise([BEGINNING, *chosen[0]])):
            state = {"s": data["s"], "t": folded_upto(data["t"], after)}
            files = {
                key: write(table, folder, f"{key}{number}", chosen[-1])
                for key, table in state.items()
            }
            interval = needs(task, after, upto)
            if interval is None:
                continue
            run = (files, after, upto, interval)
            made.append(spark.run(lambda session, run=run: program.run(session, *run)).table)
    found = [tuple(row.values()) for table in made for row in table.to_pylist()]
    assert sorted(found, key=repr) == expected(query, data)


@settings(max_examples=100, deadline=None)
@given(query=queries(), data=inputs(), chosen=cuts)
def test_the_interpreter_joins_tables_so_too(
    query: Query, data: dict[str, pa.Table], chosen: list[int]
) -> None:
    (task,) = tasks_of(query)
    made: list[dict[str, Any]] = []
    for after, upto in itertools.pairwise([BEGINNING, *chosen]):
        inputs_ = {"s": data["s"].to_pylist(), "t": folded_upto(data["t"], after).to_pylist()}
        interval = needs(task, after, upto)
        if interval is not None:
            made += run_task(task, inputs_, after, upto, interval)
    found = [tuple(row.values()) for row in made]
    assert sorted(found, key=repr) == expected(query, data)
