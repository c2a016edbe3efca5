"""Tasks computed by the interpreter, in place of Spark: many peers of one process each have theirs.

A job takes virtual time, and so much CPU time per row as the description says; both are the same in
every run of a seed.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from engine.streams.epochs import reading
from engine.tasks.execution import Result
from engine.tasks.plan import Task
from engine.tasks.windows import Interval
from overlay.events import Events
from testnet.simulation.interpreter import Row, run_task

FILES_HELD: Final = 64
"""Epoch files whose rows one task keeps: windows read the same files again and again."""


@dataclass(frozen=True)
class InterpreterConfig:
    """
    Attributes:
        job_s: mean virtual seconds a job takes, exponentially distributed.
        cpu_s, cpu_row_s: CPU seconds that a job is said to have taken, and those of each row.
        rng: draws the times.
    """

    job_s: float = 0.0
    cpu_s: float = 0.001
    cpu_row_s: float = 0.0
    rng: random.Random = field(default_factory=random.Random)


class InterpretingExecutor:
    """Behind `engine.tasks.execution.Executor`. jobs: how many it has run."""

    state = "running"
    trouble = ""

    def __init__(self, config: InterpreterConfig) -> None:
        self.config = config
        self.jobs = 0

    async def prepare(self, tasks: Sequence[Task] = ()) -> None:
        await trio.lowlevel.checkpoint()

    def compile(self, task: Task) -> InterpretedTask:
        """A task, to be run epoch by epoch."""
        return InterpretedTask(self, task)


class InterpretedTask:
    """Behind `engine.tasks.execution.Computation`."""

    def __init__(self, executor: InterpretingExecutor, task: Task) -> None:
        self._executor = executor
        self._task = task
        self._rows: OrderedDict[Path, list[Row]] = OrderedDict()

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        config = self._executor.config
        inputs = {name: self._read(paths, interval) for name, paths in files.items()}
        made = run_task(self._task, inputs, after, upto, interval)
        made = [row for row in made if after < row["stime"] <= upto]
        self._executor.jobs += 1
        if config.job_s:
            await trio.sleep(config.rng.expovariate(1 / config.job_s))
        else:
            await trio.lowlevel.checkpoint()
        rows = sum(len(each) for each in inputs.values())
        table = _table(made, self._task.output_schema.derived)
        return Result(table, config.cpu_s + rows * config.cpu_row_s)

    def _read(self, paths: Sequence[Path], interval: Interval) -> list[Row]:
        found = [row for path in paths for row in self._of(path)]
        return [row for row in found if interval.lo < row["stime"] <= interval.hi]

    def _of(self, path: Path) -> list[Row]:
        rows = self._rows.get(path)
        if rows is None:
            with reading(path) as file:
                table = file.read(use_threads=False)
            rows = table.cast(_plain(table.schema)).to_pylist()
            self._rows[path] = rows
            if len(self._rows) > FILES_HELD:
                self._rows.popitem(last=False)
        return rows


@lru_cache(maxsize=256)
def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with times as the numbers that the interpreter makes of them."""
    return pa.schema(
        [
            pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type)
            for each in schema
        ]
    )


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_plain(schema)).cast(schema)


@asynccontextmanager
async def open_interpreter(
    config: InterpreterConfig, _logs: Path, _events: Events
) -> AsyncIterator[InterpretingExecutor]:
    """An executor that needs nothing; `functools.partial` with a config makes an `OpenExecutor`."""
    yield InterpretingExecutor(config)
