"""Jobs that are ordered together are computed together, and a failing one fails alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import trio
import trio.testing

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Join, JoinKind, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.shared.step import Interval
from medusa.engine.spark.executor import kind_of
from medusa.engine.spark.shared_jobs import Order, SharedJob, shared_out
from medusa.engine.spark.shared_panes import in_windows
from medusa.engine.spark.sharing import GATHER_S, MOST_GROUPS, Sharing, go_together
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task, plan
from medusa.overlay.errors import InternalError

pytestmark = pytest.mark.quick

SOURCE = Schema("s", (Field("n", FieldType.INT),))
ONE = (Path("one.parquet"),)


def task(number: int, *, window: bool = False) -> Task:
    box = Filter("f", "s", (f"t{number}",), (f"n > {number}",))
    count = AggregateCall("count", None, "rows")
    wide = Aggregate("w", "s", f"t{number}", 10 + number, 10 + number, (), (count,))
    query = Query("q", (wide if window else box,))
    (made,) = plan(query, check_query(query, {"s": SOURCE}))
    return made


def order(number: int, files: tuple[Path, ...] = ONE, *, window: bool = False) -> Order:
    return Order(task(number, window=window), {"s": files}, 0, 9, Interval(0, 9))


def test_a_join_of_streams_with_different_fields_runs_alone() -> None:
    other = Schema("o", (Field("n", FieldType.INT), Field("text", FieldType.STRING)))
    known = {"s": SOURCE, "o": other}
    fields = (("n", "left.n"), ("text", "right.text"))
    join = Join("j", "s", "o", "t", JoinKind.INNER, 1, 1, "left.n = right.n", fields)
    query = Query("q", (join,))
    (made,) = plan(query, check_query(query, known))
    assert kind_of(made) is None


class Bench:
    """Runs jobs by noting them; each takes a second.

    Attributes:
        jobs: the names of the tasks of each job. fails: names of tasks whose jobs fail.
    """

    def __init__(self) -> None:
        self.jobs: list[list[str]] = []
        self.fails: set[str] = set()

    async def run(self, _job: SharedJob, orders: list[Order]) -> list[Result | None]:
        names = [each.task.name for each in orders]
        self.jobs.append(names)
        await trio.sleep(1.0)
        if self.fails.intersection(names):
            raise InternalError("it fails")
        return [Result(pa.table({"n": [name]}), 1.0) for name in names]


class Idle:
    """A stand-in for the job of a group: `Bench` notes the orders and never runs it."""

    def run(self, session: object, orders: object) -> list[Result | None]:
        raise AssertionError


def answer(result: Result | None) -> str | None:
    return None if result is None else result.table["n"][0].as_py()


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def compute(sharing: Sharing, given: Order, found: dict[str, str | None]) -> None:
    found[given.task.name] = answer(await sharing.compute("group", Idle, given))


async def test_orders_of_one_moment_are_one_job(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sharing, found = Sharing(bench.run, nursery), {}
    async with trio.open_nursery() as runners:
        for number in range(5):
            runners.start_soon(compute, sharing, order(number), found)
    # the first job does not wait for others: tasks that come while it runs form the next job
    assert len(bench.jobs) <= 2
    assert found == {f"t{n}": f"t{n}" for n in range(5)}
    bench.jobs.clear()
    async with trio.open_nursery() as runners:
        for number in range(5):
            runners.start_soon(compute, sharing, order(number), found)
    assert sum(map(len, bench.jobs)) == 5
    assert len(bench.jobs[0]) >= 4


async def test_a_job_waits_a_limited_time_for_an_absent_one(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sharing, found = Sharing(bench.run, nursery), {}
    for _ in range(2):
        async with trio.open_nursery() as runners:
            for number in range(3):
                runners.start_soon(compute, sharing, order(number), found)
    began = trio.current_time()
    await compute(sharing, order(0), found)
    assert trio.current_time() - began <= 1.0 + GATHER_S + 1e-9


async def test_tasks_of_a_job_that_fails_run_alone(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sharing, found = Sharing(bench.run, nursery), {}
    bench.fails = {"t1"}
    async with trio.open_nursery() as runners:
        for number in range(3):
            runners.start_soon(compute, sharing, order(number), found)
    assert found["t1"] is None
    sharing.note(task(1), failed=True)
    bench.jobs.clear()
    async with trio.open_nursery() as runners:
        for number in range(3):
            runners.start_soon(compute, sharing, order(number), found)
    assert found == {"t0": "t0", "t1": None, "t2": "t2"}, "the one that fails stays alone"
    sharing.note(task(1), failed=False)
    bench.fails = set()
    await compute(sharing, order(1), found)
    assert found["t1"] == "t1", "until it does not"


async def test_a_runner_that_is_stopped_leaves_its_neighbours(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sharing, found = Sharing(bench.run, nursery), {}
    async with trio.open_nursery() as runners:
        runners.start_soon(compute, sharing, order(0), found)
        with trio.move_on_after(0.5):  # while the job runs
            await compute(sharing, order(1), found)
    assert found == {"t0": "t0"}
    await compute(sharing, order(1), found)
    assert found == {"t0": "t0", "t1": "t1"}


async def test_groups_that_are_not_used_are_forgotten(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sharing = Sharing(bench.run, nursery)
    for number in range(MOST_GROUPS + 10):
        await sharing.compute(number, Idle, order(0))
    assert len(sharing._groups) <= MOST_GROUPS + 1


def test_rows_are_shared_if_they_are_the_same_and_windows_always() -> None:
    other = (Path("other.parquet"),)
    assert go_together(order(0), order(1))
    assert not go_together(order(0), order(1, other))
    assert go_together(order(0, window=True), order(1, other, window=True))


def test_cpu_time_is_shared_out_by_weights() -> None:
    assert shared_out(6.0, [1, 2, 3]) == [1.0, 2.0, 3.0]
    assert shared_out(6.0, [0, 0]) == [0.0, 0.0]


@pytest.mark.parametrize("advance", [10, 5], ids=["tumbling", "sliding"])
def test_an_order_whose_windows_hold_too_many_rows_runs_alone(advance: int) -> None:
    stimes = pa.array(range(20), pa.int64())
    rows = pa.table({"stime": stimes, "n": pa.array(range(20), pa.int32())})
    (window,) = task(0, window=True).steps
    assert isinstance(window, AggregateStep)
    window = replace(window, size_us=10, advance_us=advance)
    given = Order(task(0, window=True), {"s": ONE}, -1, 19, Interval(-1, 19))
    held = 20 if advance == 10 else 35  # the first window begins before the rows
    found = in_windows(rows, window, given, held)
    assert found is not None
    assert found.num_rows == held
    assert in_windows(rows, window, given, held - 1) is None
