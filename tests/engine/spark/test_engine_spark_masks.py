"""Windows that one job makes from the same panes equal those that plain Python makes from the
tuples."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from field_texts import fields_of

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.objects.schema import BEGINNING, END, STIME, Schema
from medusa.engine.operators.aggregate.spark_masks import Masks
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs

pytestmark = pytest.mark.spark

SOURCE = Schema("s", fields_of("g int?, n long?, s string?"))
DISTINCT_N = AggregateCall("count_distinct", "n", "of_n")
DISTINCT_S = AggregateCall("count_distinct", "s", "of_s")
TUPLES = AggregateCall("count", None, "tuples")
TOTAL = AggregateCall("sum", "n", "total")
LEAST = AggregateCall("min", "s", "least")
LAST = AggregateCall("lastval", "n", "last")
FUNCTIONS = {
    "values alone": [DISTINCT_N],
    "values beside sums": [TUPLES, DISTINCT_N, TOTAL, LEAST],
    "two kinds of values": [DISTINCT_N, DISTINCT_S],
    "what is in parts": [LAST, DISTINCT_N, TUPLES, DISTINCT_S],
}
Row = tuple[int, int, int | None, int | None, str | None]


def rows_of(rng: random.Random, span: int, count: int) -> list[Row]:
    """Draw tuples in an order: stime, seq and fields. Many values occur in few panes."""
    stimes = sorted(rng.choice((rng.randrange(span), span // 2)) for _ in range(count))
    numbers = [None, *range(-3, 4), 2**62, 2**62]
    return [
        (
            stime,
            seq,
            rng.choice((None, 1, 1, 2)),
            rng.choice((rng.choice(numbers), stime // 7)),
            rng.choice((None, "a", f"at {stime // 30}")),
        )
        for seq, stime in enumerate(stimes)
    ]


def expected(
    rows: Sequence[Row],
    functions: Sequence[AggregateCall],
    size: int,
    advance: int,
    groups: tuple[str, ...] = ("g",),
) -> list[tuple[object, ...]]:
    least = (rows[0][0] - size) // advance * advance
    found: list[tuple[object, ...]] = []
    for start in range(least, rows[-1][0] + advance, advance):
        within = [row for row in rows if start <= row[0] < start + size]
        for group in {(row[2],)[: len(groups)] for row in within}:
            of_group = [row for row in within if (row[2],)[: len(groups)] == group]
            numbers = [row[3] for row in of_group if row[3] is not None]
            texts = [row[4] for row in of_group if row[4] is not None]
            total = sum(numbers)
            results = {
                TUPLES: len(of_group),
                DISTINCT_N: len(set(numbers)),
                DISTINCT_S: len(set(texts)),
                TOTAL: total if numbers and -(2**63) <= total < 2**63 else None,
                LEAST: min(texts, default=None),
                LAST: of_group[-1][3],
            }
            found.append((start, *group, *(results[each] for each in functions)))
    return sorted(found, key=repr)


def tasks(
    functions: Sequence[AggregateCall], size: int, advance: int, groups: tuple[str, ...] = ("g",)
) -> list[Task]:
    box = Aggregate("w", "s", "medusa://mit.edu/out", size, advance, groups, tuple(functions))
    query = Query("q", (box,), panes=(("w", 10),))
    return list(plan(query, check_query(query, {"s": SOURCE})))


def computed(
    spark: Spark, made: Sequence[Task], rows: Sequence[Row], boundaries: Sequence[int], folder: Path
) -> list[tuple[object, ...]]:
    """Return the combining task's output, over all panes."""
    names = ("stime", "seq", "g", "n", "s")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    path = folder / "s.parquet"
    pq.write_table(pa.table(columns, schema=SOURCE.source), path)
    files = {"s": [path]}
    for task, cuts in zip(made, ([END], [*boundaries, END]), strict=True):
        program, tables = Program(task), []
        for after, upto in itertools.pairwise([BEGINNING, *cuts]):
            interval = needs(task, after, upto)
            if interval is not None:
                epoch = partial(program.run, files=files, after=after, upto=upto, interval=interval)
                tables.append(spark.run(epoch).table)
        table = pa.concat_tables(tables)
        path = folder / f"{task.output.rsplit('/', 1)[1]}.parquet"
        pq.write_table(table, path)
        files[task.output] = [path]
    table = table.set_column(1, "window_start", table["window_start"].cast(pa.int64()))
    rows_found = zip(*(column.to_pylist() for column in table.drop([STIME]).columns), strict=True)
    return sorted(rows_found, key=repr)


@pytest.mark.parametrize("functions", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize(("size", "advance"), [(60, 10), (80, 20), (40, 20)])
def test_windows_of_one_job_equal_the_windows_of_the_tuples(
    spark: Spark, tmp_path: Path, functions: Sequence[AggregateCall], size: int, advance: int
) -> None:
    """A job makes two windows or more."""
    rng = random.Random(size * advance + len(functions))
    rows = rows_of(rng, 600, 150)
    made = tasks(functions, size, advance)
    most = size // advance
    ends = itertools.accumulate([2, 3, most, most + 2], initial=5)
    boundaries = [advance * windows - 1 for windows in ends]
    assert computed(spark, made, rows, boundaries, tmp_path) == expected(
        rows, functions, size, advance
    )


def test_windows_without_groups_equal_the_windows_of_the_tuples(
    spark: Spark, tmp_path: Path
) -> None:
    """A job over no panes makes no window, either."""
    rows = [row for row in rows_of(random.Random(3), 600, 150) if not 200 < row[0] < 400]
    functions = [DISTINCT_N, TUPLES]
    made = tasks(functions, 60, 10, ())
    found = computed(spark, made, rows, [199, 259, 309, 349, 459], tmp_path)
    assert found == expected(rows, functions, 60, 10, ())


def fitting(functions: Sequence[AggregateCall], most: int) -> list[int]:
    """Draw windows whose values can be counted by masks."""
    _, combining = tasks(functions, 60, 10)
    (step,) = combining.steps
    assert isinstance(step, AggregateStep)
    return [n for n in range(1, most) if Masks(step, 99, 99 + 10 * n).fit]


@pytest.mark.usefixtures("spark")
def test_masks_are_for_values_and_a_few_states_that_do_not_ask_for_time() -> None:
    sketch = AggregateCall("approx_count_distinct", "n", "about")
    assert fitting([DISTINCT_N], 100) == [*range(1, 63)]
    assert fitting([DISTINCT_N, DISTINCT_S], 100) == [*range(1, 63)]
    assert fitting([TUPLES, DISTINCT_N, TOTAL, LEAST], 100) == [*range(1, 7)]  # four states
    assert fitting([LAST, DISTINCT_N], 10) == []
    assert fitting([DISTINCT_N, sketch], 10) == []
    median = AggregateCall("median", "n", "middle")
    assert fitting([median], 10) == fitting([DISTINCT_N, median], 10) == []
