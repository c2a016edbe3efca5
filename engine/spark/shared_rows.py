"""One job for all tasks without windows over the same rows.

One scan evaluates the predicates of all tasks: a row is emitted once, with a truth value for each
task, and with the columns of each map. Arrow then selects the rows and columns of each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medusa.engine.dataframes.columns import output, quoted
from medusa.engine.dataframes.rows import merged_fields, row_schema
from medusa.engine.expressions.typed import Expression
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.shared.step import Step
from medusa.engine.spark.prepared import Prepared
from medusa.engine.spark.shared_jobs import Order, read_input, shared_out
from medusa.engine.spark.stages import StepInput, stage_of
from medusa.engine.streams.ordering import between
from medusa.engine.tasks.canonical import canonical, is_strict
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task

MOST_TASKS: Final = 128
"""Tasks of one job: it has as many columns."""

MOST_NODES: Final = 2_048
"""Nodes of all expressions of one job: a larger one takes seconds to compile."""

ABSENT: Final = 100
"""The number of a job's runs in a row without an order of a task, after which the job leaves the
task out: until then it evaluates the task in vain."""

Steps = tuple[Step, ...]
Mapping = tuple[tuple[str, Expression], ...]


def fits(task: Task) -> bool:
    """Whether a shared job can compute the task: filters, then at most one map."""
    of_rows = all(step.reach is None and not step.recalls for step in task.steps)
    plain = all(step.mapping is None for step in task.steps[:-1])
    nodes = sum(step.nodes({}) for step in task.steps)
    return of_rows and plain and nodes <= MOST_NODES // 8


class SharedRows:
    """The shared job for tasks over rows, or several jobs if the tasks are many. A job is planned
    anew when a task joins it. Args: task: the first task; all have its inputs.
    """

    def __init__(self, task: Task) -> None:
        self._fields = merged_fields(task.input_schemas)
        self._jobs: list[_Job] = []

    def run(self, session: SparkSession, orders: Sequence[Order]) -> list[Result | None]:
        """As `SharedJob.run`. All orders have the same files and the same interval."""
        rows = read_input(orders[0], self._fields, with_seq=False)
        results: list[Result | None] = [None] * len(orders)
        if rows is None:
            return results
        places: dict[_Job, list[int]] = {}
        for place, order in enumerate(orders):
            places.setdefault(self._job_of(order.task.steps), []).append(place)
        for job, own in places.items():
            made = job.run(session, self._fields, rows, [orders[place] for place in own])
            for place, result in zip(own, made, strict=True):
                results[place] = result
        self._jobs = [job for job in self._jobs if job.absent]
        return results

    def _job_of(self, steps: Steps) -> _Job:
        """The job that has these steps; else the first with room for them."""
        nodes = sum(step.nodes({}) for step in steps)
        own = (job for job in self._jobs if steps in job.absent)
        free = (job for job in self._jobs if job.has_room(nodes))
        found = next(own, None) or next(free, None)
        if found is None:
            self._jobs.append(found := _Job())
        found.absent.setdefault(steps, 0)
        return found


class _Job:
    """One Spark job for several tasks.

    Attributes:
        absent: the tasks of the job, each by its steps, with the number of runs of the job since
            one last computed that task; beyond `ABSENT` the job leaves it out.
    """

    def __init__(self) -> None:
        self.absent: dict[Steps, int] = {}
        self._planned: _Planned | None = None

    def has_room(self, nodes: int) -> bool:
        """Whether the job has room for another task of `nodes` nodes."""
        taken = sum(step.nodes({}) for steps in self.absent for step in steps)
        return len(self.absent) < MOST_TASKS and taken + nodes <= MOST_NODES

    def run(
        self,
        session: SparkSession,
        fields: Sequence[Field],
        rows: pa.Table,
        orders: Sequence[Order],
    ) -> list[Result | None]:
        """The results over these rows."""
        planned = self._plan(session, fields, {order.task.steps for order in orders})
        planned.prepared.meter.start()
        raw = planned.prepared.run(rows)
        if raw is None:
            return [None] * len(orders)
        tables = planned.split(raw, orders)
        weights = [_weight(order, t, rows) for order, t in zip(orders, tables, strict=True)]
        shares = shared_out(planned.prepared.meter.read(), weights)
        return [Result(*both) for both in zip(tables, shares, strict=True)]

    def _plan(self, session: SparkSession, fields: Sequence[Field], wanted: set[Steps]) -> _Planned:
        """The plan for its tasks, without those that have been absent for long."""
        runs = {s: 0 if s in wanted else n + 1 for s, n in self.absent.items()}
        self.absent = {steps: n for steps, n in runs.items() if n <= ABSENT}
        planned = self._planned
        if (
            planned is None
            or planned.prepared.session is not session
            or planned.steps != self.absent.keys()
        ):
            planned = self._planned = _Planned(session, fields, list(self.absent))
        return planned


def _weight(order: Order, table: pa.Table, rows: pa.Table) -> float:
    """The weight of a task in a job's CPU time: the nodes it evaluates, the cells of its result."""
    nodes = sum(step.nodes({}) for step in order.task.steps)
    cells = table.num_rows * table.num_columns
    return float(1 + nodes + cells / max(1, rows.num_rows))


class _Planned:
    """The plan of a job over some tasks. Attributes: steps: the steps of each of the tasks."""

    def __init__(
        self, session: SparkSession, fields: Sequence[Field], members: list[Steps]
    ) -> None:
        self._fields = fields
        self._numbers = {steps: number for number, steps in enumerate(members)}
        self.steps = set(members)
        self._only = len(members) == 1
        self.prepared = Prepared(session, row_schema(fields, with_seq=False), self._build)

    def _build(self, frame: DataFrame) -> DataFrame:
        columns = [quoted(STIME)]
        columns += [quoted(field.name).alias(f"f{n}") for n, field in enumerate(self._fields)]
        if all(_map_of(steps) for steps in self._numbers):
            columns = columns[:1]
        for steps, number in self._numbers.items():
            predicate = _predicate(steps)
            if self._only:  # only the rows of this task are results
                frame = frame.where(predicate)
            else:
                columns.append(F.coalesce(predicate, F.lit(False)).alias(f"t{number}"))
            mapping = _map_of(steps)
            if mapping is not None:
                made = [output(*each) for each in mapping]
                if not self._only:
                    made = [F.when(predicate, each) for each in made]
                columns += [each.alias(f"m{number}_{n}") for n, each in enumerate(made)]
        return frame.select(*columns)

    def split(self, raw: pa.Table, orders: Sequence[Order]) -> list[pa.Table]:
        """The result of each order."""
        raw = raw.combine_chunks()
        ordered = is_strict(raw)
        if not ordered and "f0" in raw.column_names:
            names = [STIME, *(f"f{n}" for n in range(len(self._fields)))]
            keys = [(name, "ascending") for name in names]
            raw = raw.take(pc.sort_indices(raw, sort_keys=keys))
        return [self._own(raw, order, ordered=ordered) for order in orders]

    def _own(self, raw: pa.Table, order: Order, *, ordered: bool) -> pa.Table:
        number, mapping = self._numbers[order.task.steps], _map_of(order.task.steps)
        schema = order.task.output_schema.derived
        rows = between(raw, order.after, order.upto)
        if not self._only:
            rows = rows.filter(rows.column(f"t{number}"))
        if mapping is None:
            names = [STIME, *(f"f{n}" for n in range(len(self._fields)))]
            return rows.select(names).rename_columns(schema.names).cast(schema)
        names = [STIME, *(f"m{number}_{n}" for n in range(len(mapping)))]
        made = [STIME, *(name for name, _ in mapping)]
        found = rows.select(names).rename_columns(made).select(schema.names)
        return found.cast(schema) if ordered else canonical(found, schema)


def _map_of(steps: Steps) -> Mapping | None:
    return steps[-1].mapping if steps else None


def _predicate(steps: Steps) -> Column:
    """A column that is true for the rows that pass all filters."""
    stages = (stage_of(step, StepInput((), by_arrival=False)) for step in steps)
    conditions = [each.condition for each in stages if each.condition is not None]
    return reduce(and_, conditions) if conditions else F.lit(True)
