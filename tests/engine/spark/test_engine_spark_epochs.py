"""The property behind everything else: any cut into epochs gives the results of one batch run."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import random
import tempfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pytest
from epoch_files import printed, write
from epoch_matches import Computed
from epoch_networks import (
    SOURCES,
    Network,
    cuts,
    every_function,
    joins_as_of,
    networks,
    order_sql,
    sources,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from printed_queries import Language, reread
from reference_aggregates import define_aggregates
from reference_sketch import define

from examples import ONE_FIXTURE, examples
from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.shared.step import Interval
from medusa.engine.spark.executor import kind_of
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.spark.shared_jobs import Order, SharedJob, is_small
from medusa.engine.spark.sharing import go_together
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs

pytestmark = pytest.mark.spark


def batch(network: Network, data: Mapping[str, pa.Table]) -> dict[str, list[str]]:
    """Return every stream that the network makes, computed at once by DuckDB."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        define(database)
        define_aggregates(database)
        for name, table in data.items():
            database.register(f"raw_{name}", table)
            floats = ", ".join(
                f"{field.name} + 0.0 AS {field.name}"  # reading turns -0.0 into 0.0
                for field in table.schema
                if pa.types.is_float64(field.type)
            )
            database.execute(f"CREATE TABLE {name} AS SELECT * REPLACE ({floats}) FROM raw_{name}")
        answers = {}
        for name, statement in network.sql.items():
            if isinstance(statement, Computed):
                given = database.sql(f"SELECT * FROM {statement.source}").to_arrow_table()
                database.register(f"made_{name}", statement.table(given, network.schemas[name]))
                database.execute(f"CREATE TABLE {name} AS SELECT * FROM made_{name}")
            else:
                database.execute(f"CREATE TABLE {name} AS {statement}")
            order = order_sql(network.schemas[name], source=False)
            answer = database.sql(f"SELECT * FROM {name} ORDER BY {order}").to_arrow_table()
            answers[name] = printed(answer)
        return answers


class Jobs:
    """The shared jobs of some tasks; each order is computed with other orders of its group, which
    are not due any more."""

    def __init__(self, spark: Spark) -> None:
        self._spark = spark
        self._jobs: dict[Hashable, SharedJob] = {}
        self._earlier: dict[Hashable, list[Order]] = {}

    def run(self, order: Order) -> pa.Table | None:
        """Return the order's result in a shared job; None: the order runs alone."""
        kind = kind_of(order.task)
        if kind is None or not is_small(order.paths):
            return None
        key, make = kind
        job = self._jobs.get(key) or self._jobs.setdefault(key, make())
        earlier = self._earlier.setdefault(key, [])
        together = [*(each for each in earlier[-3:] if go_together(order, each)), order]
        results = self._spark.run(lambda session: job.run(session, together))
        earlier.append(order)
        assert len(results) == len(together)
        return None if results[-1] is None else results[-1].table


def run_task(
    spark: Spark,
    task: Task,
    files: Mapping[str, Sequence[Path]],
    boundaries: Sequence[int],
    jobs: Jobs,
) -> list[pa.Table]:
    """Compute a task's output, epoch after epoch: alone and in shared jobs."""
    program, made = Program(task), []
    for after, upto in itertools.pairwise([BEGINNING, *boundaries]):
        interval = needs(task, after, upto)
        table = task.output_schema.derived.empty_table()
        if interval is not None:
            run = (files, after, upto, interval)
            table = spark.run(lambda session, run=run: program.run(session, *run)).table
            shared = jobs.run(Order(task, *run))
            assert shared is None or printed(shared) == printed(table)
            assert shared is None or shared.schema == table.schema
        assert table.schema == task.output_schema.derived
        assert all(after < stime <= upto for stime in table["stime"].to_pylist())
        made.append(table)
    return made


def check(
    spark: Spark,
    network: Network,
    data: Mapping[str, pa.Table],
    chosen: Sequence[Sequence[int]],
    language: Language = Language.XML,
) -> None:
    """Compare a network, as a language prints and reads it, with DuckDB's answers."""
    expected = batch(network, data)
    query = reread(network.query, SOURCES, language)
    cycle = itertools.cycle(chosen)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {key: write(table, folder, key, next(cycle)) for key, table in data.items()}
        jobs = Jobs(spark)
        for task in plan(query, network.schemas, frozenset()):
            table = pa.concat_tables(run_task(spark, task, files, next(cycle), jobs))
            if task.output in expected:  # panes are not results of the query
                assert printed(table) == expected[task.output], task
            files[task.output] = write(table, folder, task.output, next(cycle))


@settings(max_examples=examples(8, soak=30), suppress_health_check=ONE_FIXTURE)
@given(
    network=networks(),
    first=sources(),
    second=sources(),
    chosen=st.lists(cuts, min_size=1, max_size=5),
    language=st.sampled_from(Language),
)
def test_any_cut_gives_what_one_batch_run_gives(
    spark: Spark,
    network: Network,
    first: pa.Table,
    second: pa.Table,
    chosen: list[list[int]],
    *,
    language: Language,
) -> None:
    check(spark, network, {"s0": first, "s1": second}, chosen, language)


@settings(max_examples=examples(8, soak=200), suppress_health_check=ONE_FIXTURE)
@given(
    network=joins_as_of(),
    first=sources(40),
    second=sources(40),
    chosen=st.lists(cuts, min_size=1, max_size=3),
    language=st.sampled_from(Language),
)
def test_a_join_as_of_looks_back_or_forward_at_any_cut(
    spark: Spark,
    network: Network,
    first: pa.Table,
    second: pa.Table,
    chosen: list[list[int]],
    *,
    language: Language,
) -> None:
    check(spark, network, {"s0": first, "s1": second}, chosen, language)


INTERPRETS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture
def interpreting(spark: Spark) -> Iterator[None]:
    """Have Spark interpret expressions, as it does where the code it generates is too long."""
    spark.run(lambda session: [session.conf.set(*each) for each in INTERPRETS.items()])
    yield
    spark.run(lambda session: [session.conf.unset(name) for name in INTERPRETS])


def test_every_function_of_every_type(spark: Spark) -> None:
    check_every_function(spark, 20, 20, None)


@pytest.mark.usefixtures("interpreting")
def test_every_function_of_every_type_interpreted(spark: Spark) -> None:
    """As the test before, without the compiler, which takes half of that test's CPU time."""
    check_every_function(spark, 20, 10, 5)


def check_every_function(spark: Spark, size: int, advance: int, width: int | None) -> None:
    rng = random.Random(size + advance)
    half, most = 2**31, 2**63
    values = {
        "k": [None, half - 1, -half, *range(-3, 5)],
        "b": [127, -128, *range(-3, 5)],
        "n": [None, most - 1, -most, half, -half - 1, 2**40 + 3, *range(-3, 5)],
        "s": [None, "", "x", "X", "é.1", "\U0001f600", 'a"\\/', "\x01\x1f\x7f\n\t"],
        "x": [None, *SPECIAL, 1.0, 1.03, 2**-30, 2**-31, 2.0**64, 1e16, *(n / 8 for n in range(9))],
        "y": [math.nan, 0.125, 2.5, -(2.0**33), 1e-20],
        "t": [None, True, False],
        "moment": [None, *range(-5, 5)],
    }
    rows = [
        {"stime": stime, "seq": seq, **{name: rng.choice(each) for name, each in values.items()}}
        for seq, stime in enumerate(sorted(rng.randrange(-40, 120) for _ in range(300)))
    ]
    table = pa.Table.from_pylist(rows, schema=SOURCES["s0"].source)
    check(spark, every_function(size, advance, width), {"s0": table}, [[60, END]])


SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 1e300, -1e300, 0.1)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=2000, suppress_health_check=ONE_FIXTURE)
@given(
    network=networks(7),
    first=sources(80),
    second=sources(80),
    chosen=st.lists(cuts, min_size=1, max_size=8),
    language=st.sampled_from(Language),
)
def test_any_cut_gives_what_one_batch_run_gives_at_length(
    spark: Spark,
    network: Network,
    first: pa.Table,
    second: pa.Table,
    chosen: list[list[int]],
    *,
    language: Language,
) -> None:
    check(spark, network, {"s0": first, "s1": second}, chosen, language)


@settings(max_examples=examples(5, soak=10), suppress_health_check=ONE_FIXTURE)
@given(network=networks())
def test_any_task_can_be_warmed_up(spark: Spark, network: Network) -> None:
    for task in plan(network.query, network.schemas, frozenset()):
        spark.run(partial(Program(task).warm_up, within=Path(tempfile.gettempdir())))


def test_sums_of_floats_do_not_depend_on_the_order_of_reading(spark: Spark, tmp_path: Path) -> None:
    functions = (AggregateCall("sum", "x", "total"), AggregateCall("avg", "x", "mean"))
    query = Query("q", (Aggregate("a", "s0", "t", 100, 100, (), functions),))
    (task,) = plan(query, check_query(query, SOURCES))
    values = [1e16, 1.0, -1e16, 0.1, 0.2, 0.3]
    rows = [{"stime": n, "seq": n, "b": 0, "x": x, "y": 0.0} for n, x in enumerate(values)]
    table = pa.Table.from_pylist(rows, schema=SOURCES["s0"].source)
    numbers = list(range(len(values)))
    program, found = Program(task), set()
    for shuffled in (
        numbers,
        numbers[::-1],
        numbers[3:] + numbers[:3],
        numbers[::2] + numbers[1::2],
    ):
        (path,) = write(table.take(shuffled), tmp_path, "s0", [END])
        run = ({"s0": [path]}, 0, 99, Interval(-1, 99))
        made = spark.run(lambda session, run=run: program.run(session, *run)).table
        found.add((made["total"][0].as_py(), made["mean"][0].as_py()))
    expected = functools.reduce(operator.add, sorted(values))
    assert found == {(expected, expected / len(values))}
