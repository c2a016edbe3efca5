"""The executor of tasks in plain Python: for small files without Java, and under simulation.

Under simulation it replaces Spark: many peers of one process each have theirs. A job takes virtual
time, and a configured CPU time for each row; both are the same in every run of a seed.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random  # noqa: TID251 - the type: the simulator passes a seeded one
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.evaluation.expressions import Row
from medusa.engine.evaluation.values import plain_floats
from medusa.engine.objects.schema import BEGINNING, STIME
from medusa.engine.operators.shared.step import Interval
from medusa.engine.reference.interpreter import run_task
from medusa.engine.streams.log.epochs import reading
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task
from medusa.overlay.events import Events

FILES_HELD: Final = 64
"""Epoch files whose rows one task caches: windows read the same files repeatedly."""


@dataclass(frozen=True)
class Costs:
    """The costs of simulated jobs.

    Attributes:
        job_s: mean virtual seconds of a job, exponentially distributed.
        cpu_s, cpu_row_s: reported CPU seconds of a job, and of each row.
        rng: draws the times.
    """

    job_s: float = 0.0
    cpu_s: float = 0.001
    cpu_row_s: float = 0.0
    rng: Random = field(default_factory=Random)


class ReferenceExecutor:
    """Implements `engine.tasks.execution.Executor`.

    Attributes:
        jobs: number of jobs so far.

    Args:
        costs: of simulated jobs; None: a job runs in a thread, at its real cost.
    """

    state = "running"
    trouble = ""

    def __init__(self, costs: Costs | None = None) -> None:
        self.costs = costs
        self.jobs = 0
        self.one_at_a_time = trio.CapacityLimiter(1)  # more threads of Python would not be faster

    async def prepare(self, tasks: Sequence[Task] = ()) -> None:
        await trio.lowlevel.checkpoint()

    def compile(self, task: Task) -> ReferenceTask:
        """A task, to be run epoch by epoch."""
        return ReferenceTask(self, task)


class ReferenceTask:
    """Implements `engine.tasks.execution.Computation`."""

    def __init__(self, executor: ReferenceExecutor, task: Task) -> None:
        self._executor = executor
        self._task = task
        self._whole = task.tables | ({task.output} if task.recalls else frozenset())
        self._rows: OrderedDict[Path, list[Row]] = OrderedDict()

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        self._executor.jobs += 1
        costs = self._executor.costs
        if costs is None:
            return await trio.to_thread.run_sync(
                self._timed, files, after, upto, interval, limiter=self._executor.one_at_a_time
            )
        table, rows = self._computed(files, after, upto, interval)
        if costs.job_s:
            await trio.sleep(costs.rng.expovariate(1 / costs.job_s))
        else:
            await trio.lowlevel.checkpoint()
        return Result(table, costs.cpu_s + rows * costs.cpu_row_s)

    def _timed(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        began = time.thread_time()
        table, _ = self._computed(files, after, upto, interval)
        return Result(table, time.thread_time() - began)

    def _computed(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> tuple[pa.Table, int]:
        """The output, and the number of rows that were read."""
        inputs = {
            name: self._read(paths, BEGINNING if name in self._whole else interval.lo, interval)
            for name, paths in files.items()
        }
        made = run_task(self._task, inputs, after, upto, interval)
        made = [row for row in made if after < row[STIME] <= upto]
        rows = sum(len(each) for each in inputs.values())
        return _table(made, self._task.output_schema.derived), rows

    def _read(self, paths: Sequence[Path], lo: int, interval: Interval) -> list[Row]:
        found = [row for path in paths for row in self._of(path)]
        return [row for row in found if lo < row[STIME] <= interval.hi]

    def _of(self, path: Path) -> list[Row]:
        rows = self._rows.get(path)
        if rows is None:
            with reading(path) as file:
                table = file.read(use_threads=False)
            rows = plain_floats(table.cast(_plain(table.schema)).to_pylist())
            self._rows[path] = rows
            if len(self._rows) > FILES_HELD:
                self._rows.popitem(last=False)
        return rows


@lru_cache(maxsize=256)
def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with times as numbers, as the interpreter has them."""
    return pa.schema(
        [
            pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type)
            for each in schema
        ]
    )


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_plain(schema)).cast(schema)


@asynccontextmanager
async def open_reference(
    costs: Costs | None, _logs: Path, _events: Events
) -> AsyncIterator[ReferenceExecutor]:
    """An executor without resources; `functools.partial` with the costs makes an `OpenExecutor`."""
    yield ReferenceExecutor(costs)
