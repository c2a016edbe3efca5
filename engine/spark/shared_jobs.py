"""The orders and the results of one job for several tasks; see `medusa.engine.spark.sharing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from medusa.engine.objects.schema import SEQ, STIME, Field
from medusa.engine.operators.shared.step import Interval
from medusa.engine.streams.log.epochs import read_group, reading
from medusa.engine.streams.ordering import between, is_ordered
from medusa.engine.tasks.canonical import without_negative_zeros
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task

MOST_ROWS: Final = 2**18
"""Rows of one job, about; a row counts once for each window that it is in. In larger jobs planning
takes little of the time, so sharing saves little."""

SHARED_BYTES: Final = 4 * 2**20
"""Parquet bytes from which on an epoch is not computed in a shared job."""


@dataclass(frozen=True, eq=False, slots=True)
class Order:
    """One epoch of a task to compute: as `medusa.engine.tasks.execution.Computation.run`."""

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
    """One Spark job for several tasks that are computed together."""

    def run(self, session: SparkSession, orders: Sequence[Order]) -> list[Result | None]:
        """The results, in the orders' order; None: an order does not fit, and is better run alone.

        Blocking; by one thread at a time.
        """


def is_small(paths: Sequence[Path]) -> bool:
    """Whether these files may be an epoch in a shared job."""
    try:
        return 0 < sum(path.stat().st_size for path in paths) < SHARED_BYTES
    except OSError:  # the job that runs alone finds the fault
        return False


def read_input(order: Order, fields: Sequence[Field], *, with_seq: bool) -> pa.Table | None:
    """The rows of an order's interval, by stime; floats without -0.0. None: there are too many.

    Raises:
        As `medusa.engine.streams.log.epochs.reading`.
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


def shared_out(cpu_s: float, weights: Sequence[float]) -> list[float]:
    """A job's CPU seconds, divided by the weights of its tasks."""
    total = sum(weights) or 1.0
    return [cpu_s * weight / total for weight in weights]
