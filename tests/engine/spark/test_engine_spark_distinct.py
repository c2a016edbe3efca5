"""`approx_count_distinct` in Spark equals its definition, and the interpreter."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from field_texts import fields_of
from pyspark.sql import functions as F
from reference_sketch import counted

from medusa.engine.aggregates.distinct import (
    APPROX_COUNT_DISTINCT,
    RANK_BITS,
    REGISTERS,
    Registers,
    estimate_of_codes,
    place,
)
from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.objects.schema import BEGINNING, END, FieldType, Schema
from medusa.engine.reference.interpreter import run_task
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs

pytestmark = pytest.mark.spark

OUTPUT = "medusa://mit.edu/out"
STANDARD_ERROR = 1.04 / math.sqrt(REGISTERS)
INTEGERS = [0, 1, -1, 5, 100, -128, 127]
TEXTS = ["", "a", "é.1.2", "\U0001f600", *("x" * n for n in (3, 4, 7, 8, 12, 31, 32, 33, 71))]
VALUES: dict[FieldType, list[object]] = {
    FieldType.BYTE: [*INTEGERS],
    FieldType.SHORT: [*INTEGERS, 2**15 - 1, -(2**15)],
    FieldType.INT: [*INTEGERS, 2**31 - 1, -(2**31)],
    FieldType.LONG: [*INTEGERS, 2**63 - 1, -(2**63)],
    FieldType.TIMESTAMP: [*INTEGERS, 1_521_900_000_000_000],
    FieldType.BOOL: [True, False],
    FieldType.SINGLE: [0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf],
    FieldType.DOUBLE: [0.0, -0.0, 1.5, 0.1, 1e300, math.nan, math.inf, -math.inf],
    FieldType.STRING: [*TEXTS, "".join(map(chr, range(1, 400)))],
}


def write(rows: pa.Table, folder: Path, name: str) -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(rows, path)
    return path


@pytest.mark.parametrize("type_", list(FieldType))
def test_the_place_of_a_value_is_that_of_the_definition(
    spark: Spark, tmp_path: Path, type_: FieldType
) -> None:
    values = [*VALUES[type_], None]
    plain = pa.array(values, pa.int64() if type_ is FieldType.TIMESTAMP else type_.arrow)
    path = write(pa.table({"v": plain.cast(type_.arrow)}), tmp_path, type_)
    value, kind = F.col("v"), Registers()
    if type_ in {FieldType.SINGLE, FieldType.DOUBLE}:
        value = value + F.lit(0.0).cast("float")  # the value as aggregates read it
    found = spark.run(
        lambda session: [
            tuple(row)
            for row in session.read.parquet(str(path))
            .select(kind.spark_key(value, type_, None), kind.spark_mark(value, type_))
            .collect()
        ]
    )
    expected = [(None, None) if each is None else place(each) for each in values]
    assert found == expected


def test_any_registers_give_what_the_interpreter_gives(spark: Spark, tmp_path: Path) -> None:
    rng = random.Random(11)
    sets: list[set[tuple[int, int]]] = [set(), {(0, 1)}, {(REGISTERS - 1, 1 + RANK_BITS)}]
    for n in (1, 5, 100, 2_000, REGISTERS - 1, REGISTERS):
        for mean in (0.5, 3.0, 20.0):
            drawn = (min(1 + int(rng.expovariate(1 / mean)), 1 + RANK_BITS) for _ in range(2 * n))
            sets.append({(k % n, rank) for k, rank in enumerate(drawn)})
    codes = [[register << 6 | rank for register, rank in each] for each in sets]
    for each in codes:
        rng.shuffle(each)
    numbered = pa.table({"n": range(len(sets)), "codes": pa.array(codes, pa.list_(pa.int32()))})
    path = write(numbered, tmp_path, "codes")
    found = spark.run(
        lambda session: [
            row[0]
            for row in session.read.parquet(str(path))
            .orderBy("n")
            .select(estimate_of_codes(F.col("codes")))
            .collect()
        ]
    )
    greatest = [
        {register: max(r for other, r in each if other == register) for register, _ in each}
        if len(each) < 1_000
        else dict(sorted(each))
        for each in sets
    ]
    assert found == [APPROX_COUNT_DISTINCT.of([*ranks.items()]) for ranks in greatest]


SOURCE = Schema("s", fields_of("g int, n long?, s string?, x double?"))


def tasks(
    functions: Sequence[AggregateCall], size: int, advance: int, pane: int | None
) -> list[Task]:
    box = Aggregate("w", "s", OUTPUT, size, advance, ("g",), tuple(functions))
    query = Query("q", (box,), panes=() if pane is None else (("w", pane),))
    return list(plan(query, check_query(query, {"s": SOURCE})))


def computed(
    spark: Spark, made: Sequence[Task], rows: pa.Table, boundaries: Sequence[int], folder: Path
) -> pa.Table:
    """Return the last task's output, each task computed epoch by epoch."""
    files = {"s": [write(rows, folder, "s")]}
    for task in made:
        program, tables = Program(task), []
        for after, upto in itertools.pairwise([BEGINNING, *boundaries]):
            interval = needs(task, after, upto)
            if interval is None:
                continue
            epoch = partial(program.run, files=files, after=after, upto=upto, interval=interval)
            tables.append(spark.run(epoch).table)
        table = pa.concat_tables(tables)
        files[task.output] = [write(table, folder, task.output.rsplit("/", 1)[1])]
    return table


APPROXIMATE = "approx_count_distinct"


def test_the_estimate_is_as_good_as_promised(spark: Spark, tmp_path: Path) -> None:
    """There is one window for each cardinality: the nulls alone, 1, 100, ... 10^6."""
    sizes = [0, 1, 100, 10_000, 1_000_000]
    groups = [k for k, size in enumerate(sizes) for _ in range(max(size, 3))]
    values = [None if k == 0 else n % sizes[k] for n, k in enumerate(groups)]
    columns = {
        "stime": [0] * len(groups),
        "seq": range(len(groups)),
        "g": groups,
        "n": values,
        "s": [None if value is None else f"host-{value}" for value in values],
        "x": [None if value is None else value / 8 for value in values],
    }
    rows = pa.table(columns, schema=SOURCE.source)
    functions = [AggregateCall(APPROXIMATE, field, f"of_{field}") for field in "nsx"]
    (task,) = tasks(functions, 60, 60, None)
    found = computed(spark, [task], rows, [END], tmp_path).to_pylist()
    assert [row["g"] for row in found] == list(range(len(sizes)))
    for row, size in zip(found, sizes, strict=True):
        for name in ("of_n", "of_s", "of_x"):
            assert abs(row[name] - size) <= 3 * STANDARD_ERROR * size, (name, size)
    for row, size in zip(found[:4], sizes, strict=False):
        assert row["of_n"] == counted(range(size)), "the reference"


def test_a_function_of_one_argument_alone_has_panes(spark: Spark, tmp_path: Path) -> None:
    """With `count_distinct` alone, a pane has values and no results beside them."""
    columns = {
        "stime": [n * 120 // 1_000 for n in range(1_000)],
        "seq": range(1_000),
        "g": [n % 3 for n in range(1_000)],
        "n": [None if n % 7 == 0 else n // 3 % 41 for n in range(1_000)],
        "s": [None] * 1_000,
        "x": [math.nan if n % 2 else -0.0 for n in range(1_000)],
    }
    rows = pa.table(columns, schema=SOURCE.source)
    for function in ("count_distinct", APPROXIMATE):
        for field in "nsx":
            functions = [AggregateCall(function, field, "d")]
            whole, folded = (tasks(functions, 60, 20, pane) for pane in (None, 10))
            expected = computed(spark, whole, rows, [END], tmp_path)
            assert computed(spark, folded, rows, [50, END], tmp_path).equals(expected)
            assert max(expected["d"].to_pylist()) == {"n": 41, "s": 0, "x": 2}[field]


def test_panes_and_cuts_do_not_change_the_estimate(spark: Spark, tmp_path: Path) -> None:
    """Each pane has thousands of values, so that registers are hit again and again."""
    count = 40_000
    rng = random.Random(1)
    columns = {
        "stime": [n * 120 // count for n in range(count)],
        "seq": range(count),
        "g": [n % 2 for n in range(count)],
        "n": [rng.choice([None, *[rng.randrange(30_000)] * 9]) for _ in range(count)],
        "s": [str(rng.randrange(9_000)) for _ in range(count)],
        "x": [rng.choice([math.nan, 0.0, -0.0, rng.random()]) for _ in range(count)],
    }
    rows = pa.table(columns, schema=SOURCE.source)
    one = [AggregateCall(APPROXIMATE, "n", "a"), AggregateCall("count", "n", "c")]
    more = [*one, *(AggregateCall(APPROXIMATE, field, f"of_{field}") for field in "sx")]
    more += [AggregateCall("sum", "x", "sum"), AggregateCall("min", "n", "m")]
    plain = rows.to_pylist()
    for functions in (one, more):
        (whole,) = tasks(functions, 60, 20, None)
        expected = computed(spark, [whole], rows, [END], tmp_path)
        interval = needs(whole, BEGINNING, END)
        assert interval is not None
        columns_ = ["stime", "g", *(each.output for each in functions if each.output != "sum")]
        by_hand = run_task(whole, {"s": plain}, BEGINNING, END, interval)
        assert expected.select(columns_).to_pylist() == [
            {name: row[name] for name in columns_} for row in by_hand
        ]
        for pane, cut in ((20, [END]), (10, [35, 40, 90, END]), (1, [59, 60, 119, END])):
            folded = tasks(functions, 60, 20, pane)
            found = computed(spark, folded, rows, cut, tmp_path)
            assert found.select(columns_).equals(expected.select(columns_)), (pane, cut)
