"""One job for all tasks with the same pattern, whatever streams they read.

The rows of each task are put together in Arrow, with the task's number beside them, which is one
more field that the pattern's tuples are partitioned by. So the plan knows neither tasks nor times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from medusa.engine.dataframes.rows import fields_made, merged_fields, row_schema
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.match.spark import Matches
from medusa.engine.operators.match.step import MatchStep
from medusa.engine.operators.shared.step import JobSharing
from medusa.engine.spark.prepared import Prepared
from medusa.engine.spark.shared_jobs import MOST_ROWS, Order, read_input, shared_out
from medusa.engine.spark.stages import StepInput, stage_of
from medusa.engine.tasks.canonical import canonical
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.revised_tasks import by_arrival

TASK: Final = "task "
"""The column with the number of an order; no field's name has a blank."""


class SharedMatches:
    """A job for the matches of several tasks. Args: task: one of its tasks; all have the same
    fields and the same steps.
    """

    def __init__(self, task: Task) -> None:
        self._fields = merged_fields(task.input_schemas)
        self._steps = task.steps
        self._by_arrival = by_arrival(task)
        self._prepared: Prepared | None = None

    def run(self, session: SparkSession, orders: Sequence[Order]) -> list[Result | None]:
        """As `SharedJob.run`."""
        tables: list[pa.Table | None] = []
        rows = 0
        for number, order in enumerate(orders):
            found = read_input(order, self._fields, with_seq=self._by_arrival)
            if found is not None and rows + found.num_rows <= MOST_ROWS:
                rows += found.num_rows
                tag = pa.array(np.full(found.num_rows, number, np.int32))
                tables.append(found.append_column(TASK, tag))
            else:
                tables.append(None)
        read = [table for table in tables if table is not None]
        if not read:
            return [None] * len(orders)
        if self._prepared is None or self._prepared.session is not session:
            self._prepared = Prepared(session, self._schema(), self._build)
        self._prepared.meter.start()
        raw = self._prepared.run(pa.concat_tables(read))
        if raw is None:
            return [None] * len(orders)
        weights = [0.0 if table is None else 50.0 + table.num_rows for table in tables]
        shares = shared_out(self._prepared.meter.read(), weights)
        return [
            None if tables[number] is None else Result(_own(raw, number, order), shares[number])
            for number, order in enumerate(orders)
        ]

    def _schema(self) -> T.StructType:
        rows = row_schema(self._fields, with_seq=self._by_arrival)
        return T.StructType([*rows.fields, T.StructField(TASK, T.IntegerType())])

    def _build(self, frame: DataFrame) -> DataFrame:
        fields: Sequence[Field] = self._fields
        for step in self._steps:
            if step.sharing is JobSharing.MATCHES:
                matches = Matches(
                    cast("MatchStep", step), fields, by_arrival=self._by_arrival, tags=[TASK]
                )
                frame = matches.all(frame)
                continue
            frame = stage_of(step, StepInput(fields, self._by_arrival)).tagged(frame, [TASK])
            if step.mapping is not None:
                fields = fields_made(step.mapping)
        return frame


def _own(raw: pa.Table, number: int, order: Order) -> pa.Table:
    """The result of an order."""
    at = raw.column(STIME)
    due = pc.and_(pc.greater(at, order.after), pc.less_equal(at, order.upto))
    schema = order.task.output_schema.derived
    own = raw.filter(pc.and_(due, pc.equal(raw.column(TASK), number)))
    return canonical(own.select(schema.names), schema)
