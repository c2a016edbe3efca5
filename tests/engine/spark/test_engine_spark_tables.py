"""Joins with tables read the table as of the time of each tuple, for any cut, and however much of
the table was folded."""

from __future__ import annotations

import itertools
import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from epoch_files import write
from epoch_networks import cuts, paned_sum_sql
from field_texts import fields_of
from hypothesis import given, settings
from hypothesis import strategies as st
from printed_queries import Language, reread

from examples import ONE_FIXTURE, examples
from medusa.engine.language.check import check_query
from medusa.engine.objects.query import (
    AggregateCall,
    Box,
    Filter,
    Join,
    JoinKind,
    Map,
    OrderBy,
    Query,
    Top,
    Totals,
    TupleWindows,
    order_by,
)
from medusa.engine.objects.schema import BEGINNING, DELETED, END, Field, FieldType, Schema
from medusa.engine.reference.interpreter import run_task
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.streams.log.folding import newest
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs

F = FieldType
STREAM = Schema("s", fields_of("k int?, x double, ts timestamp"), "ts")
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
    numbered = [
        {**each, "seq": number, "ts": each["stime"]}  # a table has no `seq`
        for number, each in enumerate(found)
    ]
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


def folded_upto(table: pa.Table, boundary: int) -> pa.Table:
    """Return the table's state when its log has folded all tuples up to a boundary."""
    before = table.filter(pc.less_equal(table["stime"], boundary))
    after = table.filter(pc.greater(table["stime"], boundary))
    return pa.concat_tables([newest(before, TABLE.key), after])


def tasks_of(query: Query) -> tuple[Task, ...]:
    return plan(query, check_query(query, SCHEMAS))


@settings(max_examples=examples(12, soak=100), suppress_health_check=ONE_FIXTURE)
@given(
    query=queries(),
    data=inputs(),
    chosen=st.lists(cuts, min_size=1, max_size=3),
    language=st.sampled_from(Language),
)
@pytest.mark.spark
def test_a_table_is_joined_as_of_each_tuple_whatever_is_cut_and_folded(
    spark: Spark,
    query: Query,
    data: dict[str, pa.Table],
    chosen: list[list[int]],
    *,
    language: Language,
) -> None:
    (task,) = tasks_of(reread(query, SCHEMAS, language, {"t"}))
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


# -- totals and places -----------------------------------------------------------------------------

LAST = {
    "count": lambda x: f"count({x})",
    "sum": lambda x: paned_sum_sql(x, 1) if x == "x" else f"sum({x})::BIGINT",
    "avg": lambda x: (
        f"{paned_sum_sql(x, 1)} / count({x})" if x == "x" else f"sum({x})::DOUBLE / count({x})"
    ),
    "min": lambda x: f"min({x})",
    "max": lambda x: f"max({x})",
    "count_distinct": lambda x: f"count(DISTINCT {x})",
}


@st.composite
def kept_tables(draw: st.DrawFn) -> tuple[Query, str]:
    """Draw a query that keeps a table, and the same query in DuckDB's SQL."""
    return draw(st.sampled_from([_totals, _changes, _top]))(draw)


def _totals(draw: st.DrawFn) -> tuple[Query, str]:
    asked = st.tuples(st.sampled_from(sorted(LAST)), st.sampled_from(["k", "x"]))
    pairs = draw(st.lists(asked, min_size=1, max_size=4))
    return totals_by(draw(st.sampled_from(["k", "x"])), pairs)


def totals_by(group: str, pairs: Sequence[tuple[str, str]]) -> tuple[Query, str]:
    """Draw group aggregates by k or x, and the same in DuckDB's SQL."""
    functions = [AggregateCall(f, x, f"f{n}") for n, (f, x) in enumerate(pairs)]
    columns = [f"{LAST[f](x)} AS f{n}" for n, (f, x) in enumerate(pairs)]
    box = Totals("t", "s", "out", (group,), tuple(functions))
    inner = re.sub(r"(?<![\w.'])(k|x|stime)\b", r"s.\1", ", ".join(columns))
    return Query("q", (box,)), (
        f"SELECT t.stime, t.{group}, {inner} FROM (SELECT DISTINCT stime, {group} FROM s) t "
        f"JOIN s ON s.{group} IS NOT DISTINCT FROM t.{group} AND s.stime <= t.stime "
        f"GROUP BY t.stime, t.{group}"
    )


def _changes(draw: st.DrawFn) -> tuple[Query, str]:
    functions = (
        AggregateCall("count", None, "n"),
        AggregateCall("sum", "k", "total"),
        AggregateCall("avg", "k", "mean"),
    )
    box = Totals("t", "t", "out", ("v",), functions, changes=True)
    until = f"lead(stime, 1, {END}) OVER (PARTITION BY k ORDER BY stime, {TIES}) AS until"
    alive = f"(SELECT * FROM (SELECT *, {until} FROM t) WHERE NOT coalesce({DELETED}, false))"
    times = f"(SELECT stime, v FROM {alive} UNION SELECT until, v FROM {alive} WHERE until < {END})"
    return Query("q", (box,)), (
        f"SELECT c.stime, c.v, count(a.k) AS n, sum(a.k)::BIGINT AS total, "
        f"sum(a.k)::DOUBLE / nullif(count(a.k), 0) AS mean, "
        f"CASE WHEN count(a.k) = 0 THEN true END AS {DELETED} FROM {times} c LEFT JOIN {alive} a "
        "ON a.v IS NOT DISTINCT FROM c.v AND a.stime <= c.stime AND c.stime < a.until "
        "GROUP BY c.stime, c.v"
    )


IN_WINDOW = {
    "count": "count({})",
    "sum": "sum({})",
    "avg": "avg({})",
    "min": "min({})",
    "count_distinct": "count(DISTINCT {})",
    "median": "median({})",
    "firstval": "first({} ORDER BY m.n)",
    "lastval": "last({} ORDER BY m.n)",
}


@st.composite
def windows_of_tuples(draw: st.DrawFn) -> tuple[Query, str]:
    """Draw count windows, and the same query in DuckDB's SQL: over a source stream, whose tuples of
    one stime are in the order of arrival, or over a filter, whose tuples are in the order of their
    fields."""
    called = st.tuples(st.sampled_from(sorted(IN_WINDOW)), st.just("x"))
    pairs = draw(st.lists(called | st.just(("count", "k")), min_size=1, max_size=4))
    functions = tuple(AggregateCall(f, x, f"f{n}") for n, (f, x) in enumerate(pairs))
    size, advance = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    partial = draw(st.booleans())
    groups = draw(st.sampled_from([(), ("k",)]))
    filtered = draw(st.booleans())
    number = draw(st.sampled_from(["", "place"]))
    source = "g" if filtered else "s"
    box = TupleWindows("t", source, "out", size, advance, groups, functions, partial, number)
    boxes = (Filter("f", "s", ("g",), ("x > -1",)), box) if filtered else (box,)
    order = "stime, k NULLS LAST, x" if filtered else "stime, seq"
    by = f"PARTITION BY {', '.join(groups)}" if groups else ""
    numbered = f"(SELECT *, row_number() OVER ({by} ORDER BY {order}) AS n FROM s" + (
        " WHERE x > -1)" if filtered else ")"
    )
    same = " AND ".join(f"m.{each} IS NOT DISTINCT FROM e.{each}" for each in groups) or "true"
    columns = [f"e.{each}" for each in groups]
    columns += [f"{IN_WINDOW[f].format(f'm.{x}')} AS f{n}" for n, (f, x) in enumerate(pairs)]
    columns += ["e.n"] if number else []
    whole = "" if partial else f"AND e.n >= {size}"
    keys = ", ".join(["e.stime", "e.n", *(f"e.{each}" for each in groups)])
    cut = ("g",) if filtered and draw(st.booleans()) else ()
    return Query("q", boxes, cut), (
        f"SELECT e.stime, {', '.join(columns)} FROM {numbered} e JOIN {numbered} m ON {same} "
        f"AND m.n BETWEEN e.n - {size - 1} AND e.n "
        f"WHERE (e.n - {size}) % {advance} = 0 {whole} GROUP BY {keys}"
    )


TIES = f"k NULLS LAST, v NULLS LAST, {DELETED} NULLS LAST"


def words(order: OrderBy) -> str:
    """Write the order of a field in DuckDB's SQL."""
    nulls = "FIRST" if order.nulls_first else "LAST"
    return f"{'DESC' if order.descending else 'ASC'} NULLS {nulls}"


def _top(draw: st.DrawFn) -> tuple[Query, str]:
    most = draw(st.integers(1, 3))
    place = "place" if most > 1 or draw(st.booleans()) else ""
    mapped = draw(st.booleans())
    group, value = draw(st.permutations(["k", "x"]))
    by_value = order_by(
        value, descending=draw(st.booleans()), nulls_first=draw(st.none() | st.booleans())
    )
    by_time = order_by("ts", descending=draw(st.booleans()))
    order = draw(st.sampled_from([(by_value,), (by_time,), (by_value, by_time)]))
    box = Top("t", "s", "first" if mapped else "out", (group,), order, most, place)
    terms = [f"{'stime' if each.field == 'ts' else each.field} {words(each)}" for each in order]
    last = any(each == order_by("ts", descending=True) for each in order)
    terms += ["stime", f"seq {'DESC' if last else 'ASC'}"]
    ranked = (
        f"SELECT t.stime AS seen, s.*, row_number() OVER (PARTITION BY t.stime, s.{group} ORDER BY "
        f"{', '.join(terms).replace('stime', 's.stime')}) AS place "
        f"FROM (SELECT DISTINCT stime, {group} FROM s) t "
        f"JOIN s ON s.{group} IS NOT DISTINCT FROM t.{group} AND s.stime <= t.stime"
    )
    changed = (
        "SELECT seen, k, x, ts, place, seq, "
        f"lag(seq) OVER (PARTITION BY {group}, place ORDER BY seen) AS old "
        f"FROM ({ranked}) WHERE place <= {most}"
    )
    boxes: tuple[Box, ...] = (box,)
    columns = "seen AS stime, k, x, ts" + (", place::INTEGER" if place else "")
    if mapped:
        fields = (("y", "x"), ("k", "k"), *((("place", "place"),) if place else ()))
        boxes = (box, Map("m", "first", "out", fields))
        columns = columns.replace("k, x, ts", "x AS y, k")
    return Query("q", boxes), f"SELECT {columns} FROM ({changed}) WHERE old IS DISTINCT FROM seq"


def ran(
    query: Query,
    data: Mapping[str, pa.Table],
    chosen: Sequence[Sequence[int]],
    compute: Any,
    *,
    fold: bool,
) -> list[tuple[Any, ...]]:
    """Return the query's output, computed epoch after epoch."""
    known = dict(data)
    for number, task in enumerate(tasks_of(query)):
        made = task.output_schema.derived.empty_table()
        for after, upto in itertools.pairwise([BEGINNING, *chosen[number % len(chosen)]]):
            interval = needs(task, after, upto)
            if interval is None:
                continue
            state = {name: known[name] for name in task.inputs}
            for name in task.tables & state.keys():
                state[name] = folded_upto(state[name], after) if fold else state[name]
            if task.recalls:
                state[task.output] = newest(made, task.output_schema.key) if fold else made
            table = compute(task, state, after, upto, interval)
            assert all(after < stime <= upto for stime in table["stime"].to_pylist())
            made = pa.concat_tables([made, table.cast(made.schema)])
        known[task.output] = made
    return [tuple(row.values()) for row in known["out"].to_pylist()]


@settings(max_examples=examples(12, soak=100), suppress_health_check=ONE_FIXTURE)
@given(
    kept=kept_tables(),
    data=inputs(),
    chosen=st.lists(cuts, min_size=1, max_size=3),
    fold=st.booleans(),
    language=st.sampled_from(Language),
)
@pytest.mark.spark
def test_a_table_is_kept_up_to_date_whatever_the_cut(
    spark: Spark,
    kept: tuple[Query, str],
    data: dict[str, pa.Table],
    chosen: list[list[int]],
    *,
    fold: bool,
    language: Language,
) -> None:
    query, statement = kept
    again = reread(query, SCHEMAS, language, {"t"})
    on_spark(spark, (again, statement), data, chosen, fold=fold)


@pytest.mark.spark
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("group", ["k", "x"])
def test_different_values_of_two_types_are_counted_together(
    spark: Spark, group: str, fold: bool
) -> None:
    chance = random.Random(7)
    zero = -0.0 if group == "k" else 0.0  # the result may be either zero of the group
    found = [
        {
            "stime": stime,
            "seq": stime,
            "ts": stime,
            "k": chance.choice([None, 0, 1, 2, 3]),
            "x": chance.choice([0.0, zero, 0.5, -1.0, 2.5]),
        }
        for stime in sorted(chance.choices(range(40), k=80))
    ]
    data = {"s": pa.Table.from_pylist(found, schema=STREAM.source)}
    different = "count_distinct"
    pairs = [
        *((different, "x"), ("count", "k"), (different, "k")),
        *(("sum", "x"), (different, "x"), ("max", "k")),
    ]
    for chosen in ([40], [9, 10, 25, 40], [1, 20, 39, 40]):
        on_spark(spark, totals_by(group, pairs), data, [chosen], fold=fold)


@settings(max_examples=examples(12, soak=100), suppress_health_check=ONE_FIXTURE)
@given(
    kept=windows_of_tuples(),
    data=inputs(),
    chosen=st.lists(cuts, min_size=1, max_size=3),
    fold=st.booleans(),
)
@pytest.mark.spark
def test_windows_have_so_many_tuples_whatever_the_cut(
    spark: Spark,
    kept: tuple[Query, str],
    data: dict[str, pa.Table],
    chosen: list[list[int]],
    fold: bool,
) -> None:
    on_spark(spark, kept, data, chosen, fold=fold)


def on_spark(
    spark: Spark,
    kept: tuple[Query, str],
    data: dict[str, pa.Table],
    chosen: list[list[int]],
    *,
    fold: bool,
) -> None:
    query, statement = kept
    with tempfile.TemporaryDirectory() as name:
        folder, numbers = Path(name), itertools.count()

        def compute(task: Task, state: dict[str, pa.Table], *epoch: Any) -> pa.Table:
            number = next(numbers)
            files = {
                key: write(table, folder, f"{key.replace('/', '_')}{number}", chosen[-1])
                for key, table in state.items()
            }
            program = Program(task)
            return spark.run(lambda session: program.run(session, files, *epoch)).table

        found = ran(query, data, chosen, compute, fold=fold)
    assert sorted(found, key=repr) == answer(statement, data)


@settings(max_examples=200)
@given(
    kept=kept_tables() | windows_of_tuples(),
    data=inputs(),
    chosen=st.lists(cuts, min_size=1, max_size=3),
    fold=st.booleans(),
)
def test_the_interpreter_keeps_tables_so_too(
    kept: tuple[Query, str], data: dict[str, pa.Table], chosen: list[list[int]], fold: bool
) -> None:
    query, statement = kept

    def compute(task: Task, state: dict[str, pa.Table], *epoch: Any) -> pa.Table:
        rows = {name: table.to_pylist() for name, table in state.items()}
        made = run_task(task, rows, *epoch)
        return pa.Table.from_pylist(made, schema=task.output_schema.derived)

    found = ran(query, data, chosen, compute, fold=fold)
    assert sorted(found, key=repr) == answer(statement, data)


def answer(statement: str, data: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        for name, table in data.items():
            database.register(name, table)
        return sorted(database.sql(statement).fetchall(), key=repr)
