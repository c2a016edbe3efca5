"""Tasks computed by the reference interpreter where a whole town of peers runs in one process:
Spark allows one session a process. Everything around the job is real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from reference_interpreter import run_task

from engine.plan import Task
from engine.spark.program import Result
from engine.windows import Interval

T = TypeVar("T")


class InterpretedProgram:
    """Behind the interface of `engine.spark.program.Program`."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def run(
        self,
        _session: Any,
        files: Mapping[str, Sequence[Path]],
        after: int,
        upto: int,
        interval: Interval,
    ) -> Result:
        inputs = {name: _rows(paths) for name, paths in files.items()}
        made = run_task(self._task, inputs, after, upto, interval)
        made = [row for row in made if after < row["stime"] <= upto]
        schema = self._task.output_schema.derived
        columns = {
            field.name: pa.array([row[field.name] for row in made], _plain(field.type)).cast(
                field.type
            )
            for field in schema
        }
        return Result(pa.table(columns, schema=schema), 0.001)


def _plain(type_: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(type_) else type_


def _rows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


class InterpretedExecutor:
    """Behind the interface of `engine.spark.executor.Executor`."""

    state = "running"

    async def prepare(self) -> None:
        await trio.lowlevel.checkpoint()

    async def run(self, job: Callable[[Any], T]) -> T:
        await trio.lowlevel.checkpoint()
        return job(None)


def interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every engine that is opened from now on compute with the interpreter."""
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def open_executor(*_: Any) -> Any:
        yield InterpretedExecutor()

    monkeypatch.setattr("engine.engine.open_executor", open_executor)
    monkeypatch.setattr("engine.task_runner.Program", InterpretedProgram)
