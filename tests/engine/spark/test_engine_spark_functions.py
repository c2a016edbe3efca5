"""Queries that call functions of users, computed with Spark: any cut into epochs gives the results
of one batch run by DuckDB, which calls the same Python functions in its own way."""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import ModuleType

import duckdb
import pyarrow as pa
import pytest
import trio
from epoch_files import printed, write
from epoch_networks import SOURCES, cuts, sources
from hypothesis import given, settings
from hypothesis import strategies as st
from lent_spark import LentSpark
from own_functions import own

from examples import ONE_FIXTURE, examples
from medusa.engine.functions.allowed import Functions
from medusa.engine.functions.computation import CallingExecutor, calling
from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Map, Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.spark.executor import SparkExecutor
from medusa.engine.spark.session import Spark
from medusa.engine.streams.log.epochs import write_rows
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs
from medusa.overlay.errors import InternalError, InvalidInputError
from medusa.overlay.events import Events

pytestmark = pytest.mark.spark

NAMES = ("distance", "label", "even", "later")


def many() -> Query:
    """A network that calls functions in every possible place."""
    return Query(
        "medusa://mit.edu/q",
        (
            Map("m", "s0", "m", FIELDS),
            Filter("f", "m", ("f",), ("even(n) and d > 1.0",)),
            Filter("split", "s0", ("evens", "others"), ("even(n)",), pass_on_false=True),
            Map("nested", "f", "nested", (("e", "distance(distance(d, 3.0), d) + 1.0"),)),
            Aggregate(
                "group",
                "m",
                "group",
                20,
                10,
                ("l",),
                (AggregateCall("max", "d", "most"), AggregateCall("count", None, "rows")),
            ),
            Map("behind", "group", "behind", (("w", "label(rows, l)"), ("l", "l"))),
        ),
    )


FIELDS = (
    ("n", "n"),
    ("d", "distance(x, y) * 2.0"),
    ("l", "label(n, s)"),
    ("at", "later(stime, k)"),
    ("kept", "case when n > 2 then label(n + 1, 'big') else s end"),
)

SQL = {
    "m": """SELECT stime, n, distance(x, y::DOUBLE) * 2.0 AS d, label(n, s) AS l,
        later(make_timestamptz(stime), k::BIGINT) AS at,
        CASE WHEN n > 2 THEN label(TRY(n + 1), 'big') ELSE s END AS kept FROM s0""",
    "f": "SELECT * FROM m WHERE even(n) AND d > 1.0",
    "evens": "SELECT * EXCLUDE (seq) FROM s0 WHERE even(n)",
    "others": "SELECT * EXCLUDE (seq) FROM s0 WHERE even(n) IS DISTINCT FROM true",
    "nested": "SELECT stime, distance(distance(d, 3.0::DOUBLE), d) + 1.0 AS e FROM f",
    "group": """SELECT w + 19 AS stime, make_timestamptz(w) AS window_start, l, max(d) AS most,
        count(*) AS rows FROM (SELECT *, unnest([
            stime - ((stime % 10) + 10) % 10, stime - ((stime % 10) + 10) % 10 - 10]) AS w FROM m)
        GROUP BY w, l""",
    "behind": 'SELECT stime, label(rows, l) AS w, l FROM "group"',
}


def imported(folder: Path) -> ModuleType:
    """Return the file of functions as a module of this process."""
    spec = importlib.util.spec_from_file_location("own", folder / "own.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batch(module: ModuleType, table: pa.Table) -> dict[str, list[str]]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        special = {"null_handling": "special"}
        database.create_function(
            "distance", _distance(module), ["DOUBLE"] * 2, "DOUBLE", type="arrow", **special
        )
        database.create_function(
            "label", _label(module), ["BIGINT", "VARCHAR"], "VARCHAR", **special
        )
        database.create_function("even", module.even, ["BIGINT"], "BOOLEAN")
        database.create_function("later", module.later, ["TIMESTAMPTZ", "BIGINT"], "TIMESTAMPTZ")
        database.register("raw", table)
        database.execute(
            "CREATE TABLE s0 AS SELECT * REPLACE (x + 0.0 AS x, y + 0.0 AS y) FROM raw"
        )
        answers = {}
        for name, statement in SQL.items():
            database.execute(f'CREATE TABLE "{name}" AS {statement}')
            answers[name] = sorted(
                printed(database.sql(f'SELECT * FROM "{name}"').to_arrow_table())
            )
        return answers


def _distance(module: ModuleType):  # noqa: ANN202 - as below
    def distance(x, y):  # noqa: ANN001, ANN202
        """A function over columns; DuckDB takes NaN in a single column for null."""
        pairs = zip(x.to_pylist(), y.to_pylist(), strict=True)
        made = [None if None in pair else module.distance(*pair) for pair in pairs]
        return pa.array(made, pa.float64())

    return distance


def _label(module: ModuleType):  # noqa: ANN202 - DuckDB reads its annotations
    def label(n, name):  # noqa: ANN001, ANN202
        """A function whose annotations say that only the name may be null."""
        return None if n is None else module.label(n, name)

    return label


@asynccontextmanager
async def executor_of(
    spark: Spark, functions: Functions, folder: Path
) -> AsyncIterator[CallingExecutor]:
    async with trio.open_nursery() as nursery:
        computing = SparkExecutor(lambda: LentSpark(spark), Events(), folder, nursery)
        async with calling(computing, functions, folder / "between") as executor:
            yield executor


async def run_task(
    executor: CallingExecutor,
    task: Task,
    files: Mapping[str, Sequence[Path]],
    boundaries: Sequence[int],
) -> pa.Table:
    """Compute a task's output, epoch after epoch."""
    computation = executor.compile(task)
    made = [task.output_schema.derived.empty_table()]
    for after, upto in itertools.pairwise([BEGINNING, *boundaries]):
        interval = needs(task, after, upto)
        if interval is not None:
            result = await computation.run(files, after, upto, interval)
            assert all(after < stime <= upto for stime in result.table["stime"].to_pylist())
            made.append(result.table)
    return pa.concat_tables(made)


def functions_in(folder: Path, *names: str) -> Functions:
    return Functions({name: own(folder, name, deterministic=True) for name in names})


async def check(
    spark: Spark, functions: Functions, query: Query, table: pa.Table, chosen: list[list[int]]
) -> dict[str, pa.Table]:
    """Check every stream of a query."""
    query = functions.completed(query)
    schemas = check_query(query, SOURCES)
    cycle = itertools.cycle(chosen)
    found: dict[str, pa.Table] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with executor_of(spark, functions, folder) as executor:
            files = {"s0": write(table, folder, "s0", next(cycle))}
            for task in plan(query, schemas):
                made = await run_task(executor, task, files, next(cycle))
                found[task.output] = made
                files[task.output] = write(made, folder, task.output, next(cycle))
    return found


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("functions")


@settings(max_examples=examples(4, soak=40), suppress_health_check=ONE_FIXTURE)
@given(table=sources(), chosen=st.lists(cuts, min_size=1, max_size=4))
def test_any_cut_gives_what_one_batch_run_gives(
    spark: Spark, code: Path, table: pa.Table, chosen: list[list[int]]
) -> None:
    functions = functions_in(code, *NAMES)
    query = many()
    found = trio.run(partial(check, spark, functions, query, table, chosen))
    expected = batch(imported(code), table)
    assert {name: sorted(printed(made)) for name, made in found.items()} == {
        name: expected[name] for name in found
    }
    assert {"m", "f", "evens", "others", "nested", "behind"} == set(found)


async def test_a_failing_call_names_the_tuple(spark: Spark, tmp_path: Path) -> None:
    """The next epochs are computed as usual."""
    functions = functions_in(tmp_path, "unlucky")
    query = functions.completed(
        Query("q", (Map("m", "s0", "m", (("u", "unlucky(n + 1)"), ("s", "s"))),))
    )
    (task,) = plan(query, check_query(query, SOURCES))
    rows = [{"stime": at, "seq": at, "n": at, "b": 0, "y": 0.0, "s": "x"} for at in range(20)]
    path = tmp_path / "s0.parquet"
    write_rows(pa.Table.from_pylist(rows, schema=SOURCES["s0"].source), path)
    files = {"s0": [path]}
    async with executor_of(spark, functions, tmp_path) as executor:
        computation = executor.compile(task)
        assert (await computation.run(files, -1, 11, needs(task, -1, 11))).table.num_rows == 12
        with pytest.raises(
            InternalError,
            match=r"function unlucky failed at the tuple of stime 12 "
            r"\(1970-01-01T00:00:00.000012Z\), unlucky\(13\): ValueError: it is 13$",
        ):
            await computation.run(files, 11, 15, needs(task, 11, 15))
        behind = await computation.run(files, 12, 19, needs(task, 12, 19))
        assert behind.table["u"].to_pylist() == [*range(14, 21)]
        assert behind.cpu_s > 0


async def test_a_function_is_called_once_a_tuple_and_not_to_warm_up(
    spark: Spark, tmp_path: Path
) -> None:
    """`between` has its operand twice, and `case` may skip it: the function is called once,
    always."""
    (tmp_path / "own.py").write_text(
        f"def seen(n: int) -> int:\n    with open({str(tmp_path / 'calls')!r}, 'a') as file:\n"
        "        file.write(f'{n} ')\n    return n\n"
    )
    functions = functions_in(tmp_path, "seen")
    texts = (("a", "seen(n) between 1 and 3"), ("b", "case when n > 5 then seen(n) else 0 end"))
    query = functions.completed(Query("q", (Map("m", "s0", "m", texts),)))
    (task,) = plan(query, check_query(query, SOURCES))
    rows = [{"stime": at, "seq": at, "n": at, "b": 0, "y": 0.0} for at in range(8)]
    path = tmp_path / "s0.parquet"
    write_rows(pa.Table.from_pylist(rows, schema=SOURCES["s0"].source), path)
    async with executor_of(spark, functions, tmp_path) as executor:
        await executor.prepare([task])
        assert not (tmp_path / "calls").exists()
        computation = executor.compile(task)
        result = await computation.run({"s0": [path]}, -1, 7, needs(task, -1, 7))
    assert (tmp_path / "calls").read_text() == "0 1 2 3 4 5 6 7 "
    assert result.table.column_names == ["stime", "a", "b"]


async def test_a_function_that_is_not_allowed_any_more(spark: Spark, tmp_path: Path) -> None:
    functions = functions_in(tmp_path, "even")
    query = functions.completed(Query("q", (Filter("f", "s0", ("t",), ("even(n)",)),)))
    (task,) = plan(query, check_query(query, SOURCES))
    functions.allow({})
    async with executor_of(spark, functions, tmp_path) as executor:
        with pytest.raises(InvalidInputError, match="function even is not allowed at this peer"):
            await executor.compile(task).run({"s0": []}, -1, 7, needs(task, -1, 7))
