"""One job for all tasks that compute the same of their windows, whatever streams they read and
however long their windows are.

The rows of each due window are put together in Arrow, with the number of the task and the window's
ends beside them. Spark groups by these as well as by the fields. So the plan knows neither tasks
nor times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import quoted
from medusa.engine.dataframes.rows import fields_made, merged_fields, row_schema
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.aggregate.spark import TaggedWindows, names_made
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.shared.step import JobSharing, Step
from medusa.engine.spark.prepared import Prepared
from medusa.engine.spark.shared_jobs import MOST_ROWS, Order, read_input, shared_out
from medusa.engine.spark.stages import StepInput, stage_of
from medusa.engine.tasks.canonical import canonical
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.revised_tasks import by_arrival

TASK: Final = "task "
START: Final = "start "
LAST: Final = "last "
"""Names of columns: the number of an order, the first and the last microsecond of a window. No
field has such a name, because of the blank."""

TAGS: Final = (START, LAST, TASK)

FAR: Final = 2**62
"""Microseconds, 146,000 years: beyond that, the ends of windows may not fit 64 bits."""


def what(task: Task) -> tuple[Step, ...]:
    """The parts of a task's steps on which Spark's plan depends. The length of the windows and the
    names of the results are not among them."""
    window = aggregate_of(task)
    plain = replace(window, size_us=0, advance_us=0, grain_us=1)
    if window is task.steps[-1]:
        named = (replace(each, output=f"v{n}") for n, each in enumerate(window.functions))
        plain = replace(plain, functions=tuple(named))
    return tuple(plain if step is window else step for step in task.steps)


def aggregate_of(task: Task) -> AggregateStep:
    """The aggregate step of a task."""
    return next(found for step in task.steps if (found := _windows(step)) is not None)


def _windows(step: Step) -> AggregateStep | None:
    return cast("AggregateStep", step) if step.sharing is JobSharing.WINDOWS else None


class SharedWindows:
    """A job for the aggregates of several tasks. Args: task: one of the tasks; all have the same
    fields and the same `what`.
    """

    def __init__(self, task: Task) -> None:
        self._fields = merged_fields(task.input_schemas)
        self._steps = what(task)
        self._by_arrival = by_arrival(task)
        self._prepared: Prepared | None = None

    def run(self, session: SparkSession, orders: Sequence[Order]) -> list[Result | None]:
        """As `SharedJob.run`."""
        numbers: dict[tuple[object, ...], int] = {}
        tables: list[pa.Table] = []
        placed: list[int | None] = []
        rows = 0
        for order in orders:
            found = self._windowed(order, numbers, tables, MOST_ROWS - rows)
            placed.append(found)
            rows = sum(table.num_rows for table in tables)
        if not tables:
            return [None] * len(orders)
        if self._prepared is None or self._prepared.session is not session:
            self._prepared = Prepared(session, self._schema(), self._build)
        self._prepared.meter.start()
        raw = self._prepared.run(pa.concat_tables(tables))
        if raw is None:
            return [None] * len(orders)
        raw = raw.combine_chunks()
        raw = raw.take(pc.array_sort_indices(raw.column(TASK).combine_chunks()))
        own = [
            None if n is None else self._own(raw, n, o) for n, o in zip(placed, orders, strict=True)
        ]
        weights = [0.0 if n is None else 50.0 + tables[n].num_rows for n in placed]
        shares = shared_out(self._prepared.meter.read(), weights)
        return [None if t is None else Result(t, s) for t, s in zip(own, shares, strict=True)]

    def _windowed(
        self,
        order: Order,
        numbers: dict[tuple[object, ...], int],
        tables: list[pa.Table],
        most: int,
    ) -> int | None:
        """Add the rows of an order's windows to `tables`; returns their number, None if they are
        too many. The same windows of the same files are added once.
        """
        window = aggregate_of(order.task)
        key = (
            window.size_us,
            window.advance_us,
            order.after,
            order.upto,
            order.interval,
            order.paths,
        )
        if key in numbers:
            return numbers[key]
        if most <= 0:
            return None
        rows = read_input(order, self._fields, with_seq=self._by_arrival)
        found = None if rows is None else in_windows(rows, window, order, most)
        if found is None:
            return None
        number = numbers[key] = len(tables)
        tag = pa.array(np.full(found.num_rows, number, np.int32))
        tables.append(found.append_column(TASK, tag))
        return number

    def _schema(self) -> T.StructType:
        rows = row_schema(self._fields, with_seq=self._by_arrival)
        tags = [(START, T.LongType()), (LAST, T.LongType()), (TASK, T.IntegerType())]
        return T.StructType([*rows.fields, *(T.StructField(*each) for each in tags)])

    def _build(self, frame: DataFrame) -> DataFrame:
        fields: Sequence[Field] = self._fields
        for step in self._steps:
            if (window := _windows(step)) is not None:
                windows = TaggedWindows(window, fields, TAGS, by_arrival=self._by_arrival)
                frame = windows.apply(frame)
                if window.form is not Form.PARTIAL:
                    frame = frame.withColumn(STIME, quoted(LAST))
                continue
            frame = stage_of(step, StepInput(fields, self._by_arrival)).tagged(frame, TAGS)
            if step.mapping is not None:
                fields = fields_made(step.mapping)
        return frame.drop(START)

    def _own(self, raw: pa.Table, number: int, order: Order) -> pa.Table:
        schema = order.task.output_schema.derived
        column = raw.column(TASK).combine_chunks()
        ends = np.searchsorted(column.to_numpy(), [number, number + 1])
        rows = raw.slice(ends[0], ends[1] - ends[0])
        stime = rows.column(LAST)
        payload = [
            rows.column(n)
            for n, name in enumerate(rows.column_names)
            if name not in {LAST, TASK, STIME}
        ]
        names: list[str] = []
        for step in order.task.steps:
            if step.mapping is not None:
                names = [name for name, _ in step.mapping]
            elif (window := _windows(step)) is not None:
                names = names_made(window)
        made = pa.table([stime, *payload], names=[STIME, *names])
        return canonical(made.select(schema.names), schema)


def in_windows(rows: pa.Table, window: AggregateStep, order: Order, most: int) -> pa.Table | None:
    """The rows of each due window, with its first and last microsecond; None: there are more than
    `most` rows."""
    stimes = rows.column(STIME).to_numpy()
    if len(stimes) and (stimes[0] < -FAR or stimes[-1] > FAR):
        return None
    size, advance = window.size_us, window.advance_us
    if size == advance:
        if rows.num_rows > most:
            return None
        starts = stimes // size * size
        found = rows
    else:
        parts = list(_slices(stimes, window, order))
        if sum(end - begin for _, begin, end in parts) > most:
            return None
        found = pa.concat_tables([rows.slice(b, e - b) for _, b, e in parts] or [rows.slice(0, 0)])
        starts = np.repeat(
            np.array([start for start, _, _ in parts], np.int64), [e - b for _, b, e in parts]
        )
    found = found.append_column(START, pa.array(starts, pa.int64()))
    return found.append_column(LAST, pa.array(starts + (size - 1), pa.int64()))


def _slices(
    stimes: np.ndarray, window: AggregateStep, order: Order
) -> Iterator[tuple[int, int, int]]:
    """(start, begin, end) of each due window with rows: rows begin..end are in it."""
    if not len(stimes):
        return
    size, advance = window.size_us, window.advance_us
    # Python's integers round towards minus infinity, and do not overflow
    first = max((order.after + 1 - size) // advance + 1, (int(stimes[0]) - size) // advance + 1)
    last = min((order.upto + 1 - size) // advance, int(stimes[-1]) // advance)
    for number in range(first, last + 1):
        start = number * advance
        begin, end = np.searchsorted(stimes, [start, start + size])
        if begin < end:
            yield start, int(begin), int(end)
