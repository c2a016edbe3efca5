"""What one job for several tasks gets and gives; see `engine.spark.sharing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from engine.language.operators import FLOATS
from engine.objects.schema import SEQ, STIME, Field, Schema
from engine.spark.columns import SPARK_TYPES
from engine.streams.epochs import read_group, reading
from engine.streams.ordering import between, is_ordered
from engine.tasks.execution import Result
from engine.tasks.plan import AggregateStep, Task
from engine.tasks.windows import Interval

MOST_ROWS: Final = 2**18
"""Rows of one job, about; those of a window count once for each window that they are in. Beyond,
planning is little beside the work itself."""


@dataclass(frozen=True, eq=False, slots=True)
class Order:
    """One epoch of a task to compute: as `engine.tasks.execution.Computation.run`."""

    task: Task
    files: Mapping[str, Sequence[Path]]
    after: int
    upto: int
    interval: Interval

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, input by input."""
        return tuple(path for name in self.task.inputs for path in self.files.get(name, ()))


class SharedJob(Protocol):
    """One job for tasks that go together."""

    def run(self, session: SparkSession, orders: Sequence[Order]) -> list[Result | None]:
        """The results, in the orders' order; None: it does not fit, and is better run alone.

        Blocking; by one thread at a time.
        """


def bytes_of(path: Path) -> int:
    """The size of a file; 0: it is not there, as the reader will find."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def by_arrival(task: Task) -> bool:
    """Whether tuples of one stime are in the order of their arrival for the task's window."""
    return (
        len(task.inputs) == 1
        and task.inputs[0] in task.source_inputs
        and isinstance(task.steps[0], AggregateStep)
    )


def merged_fields(schemas: Sequence[Schema]) -> tuple[Field, ...]:
    """The fields of the first schema; one is nullable if it is in any."""
    return tuple(
        Field(each[0].name, each[0].type, nullable=any(field.nullable for field in each))
        for each in zip(*(schema.fields for schema in schemas), strict=True)
    )


def slot_schema(fields: Sequence[Field], *, with_seq: bool) -> T.StructType:
    """The rows that a job reads."""
    columns = [T.StructField(STIME, T.LongType())]
    if with_seq:
        columns.append(T.StructField(SEQ, T.LongType()))
    return T.StructType([*columns, *(T.StructField(f.name, SPARK_TYPES[f.type]) for f in fields)])


def read_input(order: Order, fields: Sequence[Field], *, with_seq: bool) -> pa.Table | None:
    """The rows of an order's interval, by stime; floats without -0.0. None: there are too many.

    Raises:
        As `engine.streams.epochs.reading`.
    """
    names = [STIME, *([SEQ] if with_seq else []), *(field.name for field in fields)]
    types = [pa.int64()] * (len(names) - len(fields)) + [field.type.arrow for field in fields]
    shape = pa.schema(list(zip(names, types, strict=True)))
    parts, rows = [shape.empty_table()], 0
    for path in order.paths:
        with reading(path) as parquet:
            for group in range(parquet.num_row_groups):
                ends = parquet.metadata.row_group(group).column(0).statistics
                if ends.max <= order.interval.lo or ends.min > order.interval.hi:
                    continue
                found = between(
                    read_group(parquet, group, names), order.interval.lo, order.interval.hi
                )
                rows += found.num_rows
                if rows > MOST_ROWS:
                    return None
                parts.append(pa.Table.from_arrays(found.select(names).columns, schema=shape))
    table = pa.concat_tables(parts).combine_chunks()
    stime = table.column(STIME).combine_chunks()
    if not is_ordered(stime):
        table = table.take(pc.array_sort_indices(stime))  # stable
    return without_negative_zeros(table)


def without_negative_zeros(table: pa.Table) -> pa.Table:
    """The table with 0.0 for -0.0."""
    for number, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            plain = pc.add(table.column(number), pa.scalar(0.0, field.type))
            table = table.set_column(number, field, plain)
    return table


def has_floats(fields: Sequence[Field]) -> bool:
    return any(each.type in FLOATS for each in fields)


def is_strict(table: pa.Table) -> bool:
    """Whether each stime is greater than the one before: then the order is canonical."""
    stime = table.column(STIME).combine_chunks()
    return len(stime) < 2 or bool(pc.all(pc.less(stime[:-1], stime[1:])).as_py())


def canonical(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the schema's types, by stime, then payload; NaN after numbers, nulls last."""
    table = without_negative_zeros(table.cast(schema))
    if is_strict(table):
        return table
    keys = [(name, "ascending") for name in table.column_names]
    return table.take(pc.sort_indices(table, sort_keys=keys))


def shared_out(cpu_s: float, weights: Sequence[float]) -> list[float]:
    """A job's CPU seconds, by the weights of its tasks."""
    total = sum(weights) or 1.0
    return [cpu_s * weight / total for weight in weights]
