"""An executor of tasks that call functions of users, around one of tasks that do not.

A task is computed in parts (`medusa.engine.tasks.calls`): the other executor computes the
arguments, the functions' processes the results, the other executor the rest. Where a part only
chooses columns, Arrow does it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.expressions.typed import FieldRef
from medusa.engine.functions.allowed import AllowedFunction, Functions
from medusa.engine.functions.process import ROWS, CallError, FunctionProcess
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.shared.step import Interval
from medusa.engine.streams.log.epochs import read_group, reading, write_rows
from medusa.engine.streams.log.retention import dated
from medusa.engine.streams.ordering import between
from medusa.engine.tasks.calls import NamedCall, Stage, Stages, is_projection, is_time, stages_of
from medusa.engine.tasks.canonical import canonical
from medusa.engine.tasks.execution import Computation, Executor, Result
from medusa.engine.tasks.plan import Task
from medusa.overlay.errors import InternalError, printable
from medusa.overlay.files import storing

SHOWN: Final = 40
"""Characters of an argument in an error."""

BATCH_BYTES: Final = 2**24
"""Bytes of the arguments of one request, about: its process has them several times."""

AT_ONCE: Final = 4
"""Functions that compute at once: each is a process."""


class CallingExecutor:
    """Implements `medusa.engine.tasks.execution.Executor` for all tasks.

    Attributes:
        executor: the executor of tasks that call no functions. functions: the functions that may
            run here.

    Args:
        folder: for the rows between two parts; all its executors can read it.
    """

    def __init__(self, executor: Executor, functions: Functions, folder: Path) -> None:
        self.functions = functions
        self.executor = executor
        self._folder = folder
        self._processes: dict[AllowedFunction, FunctionProcess] = {}
        self._threads = trio.CapacityLimiter(AT_ONCE)

    @property
    def state(self) -> str:
        return self.executor.state

    @property
    def trouble(self) -> str:
        return self.executor.trouble

    async def prepare(self, tasks: Sequence[Task] = ()) -> None:
        """As `Executor.prepare`; no function is called for it."""
        parts: list[Task] = []
        for task in tasks:
            stages = stages_of(task)
            if stages is None:
                parts.append(task)
            else:
                parts += (part for part in stages.tasks if not is_projection(part.steps))
        await self.executor.prepare(parts)

    def compile(self, task: Task) -> Computation:
        stages = stages_of(task)
        if stages is None:
            return self.executor.compile(task)
        return _Calling(
            self,
            task,
            stages,
            tuple(self.executor.compile(stage.task) for stage in stages.stages),
            self.executor.compile(stages.last),
        )

    async def results(self, call: NamedCall, table: pa.Table) -> tuple[pa.ChunkedArray, float]:
        """The results of a call over the rows of a table, and their CPU seconds.

        Raises:
            InvalidInputError: the function is not allowed here.
            InternalError: it failed; names the tuple.
        """
        process = await self._process(self.functions.find(call.function))
        compute = partial(_computed, process, call, table)
        return await trio.to_thread.run_sync(compute, limiter=self._threads, abandon_on_cancel=True)

    async def _process(self, allowed: AllowedFunction) -> FunctionProcess:
        """The process of the function. A process with former code under that name is ended
        first."""
        found = self._processes.get(allowed)
        if found is None:
            named = [k for k in self._processes if k.function.name == allowed.function.name]
            former = [self._processes.pop(known) for known in named]
            found = self._processes[allowed] = FunctionProcess(allowed)
            for process in former:
                await trio.to_thread.run_sync(process.close)
        return found

    def rows_between(self, rows: pa.Table) -> tempfile.TemporaryDirectory[str]:
        """A folder with a file of these rows, called ROWS_FILE. Blocking."""
        with storing(self._folder):
            self._folder.mkdir(exist_ok=True)
            folder = tempfile.TemporaryDirectory(prefix=BETWEEN, dir=self._folder)
            write_rows(rows, Path(folder.name, ROWS_FILE))
            return folder

    def close(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            process.close()


ROWS_FILE: Final = "rows.parquet"

BETWEEN: Final = "between-"
"""The prefix of the names of folders that contain a file of rows."""


def _computed(
    process: FunctionProcess, call: NamedCall, table: pa.Table
) -> tuple[pa.ChunkedArray, float]:
    """Compute the results, as `CallingExecutor.results`; blocking."""
    cpu_s, began_s = 0.0, time.thread_time()
    names = [f"argument {number}" for number in range(len(call.arguments))]
    columns = [
        table.column(name).cast(type_.arrow)
        for name, type_ in zip(call.arguments, call.function.arguments, strict=True)
    ]
    arguments = pa.table(columns, names=names)
    made: list[pa.Array] = []
    size = min(ROWS, max(1, BATCH_BYTES * table.num_rows // max(1, arguments.nbytes)))
    for start in range(0, table.num_rows, size):
        (batch,) = arguments.slice(start, size).combine_chunks().to_batches()
        try:
            results, seconds = process.call(batch)
        except CallError as error:
            raise _named(error, call.function, table, start, batch) from None
        made.append(results)
        cpu_s += seconds
    cpu_s += time.thread_time() - began_s
    return pa.chunked_array(made, call.function.result.arrow), cpu_s


def _named(
    error: CallError, function: UserFunction, table: pa.Table, start: int, batch: pa.RecordBatch
) -> InternalError:
    """The error with the tuple that it is about."""
    first = table.column(STIME)[start].as_py()
    if error.row < 0 or error.row >= batch.num_rows:
        last = table.column(STIME)[start + batch.num_rows - 1].as_py()
        return InternalError(
            f"function {function.name} failed at one of {batch.num_rows:,} tuples, of stime {first}"
            f"{dated(first)} to {last}{dated(last)}: {error}"
        )
    values = (printable(repr(column[error.row].as_py()))[:SHOWN] for column in batch.columns)
    stime = table.column(STIME)[start + error.row].as_py()
    return InternalError(
        f"function {function.name} failed at the tuple of stime {stime}{dated(stime)}, "
        f"{function.name}({', '.join(values)}): {error}"
    )


@dataclass(frozen=True)
class _Calling:
    """A task that calls functions; see `medusa.engine.tasks.execution.Computation`."""

    executor: CallingExecutor
    task: Task
    stages: Stages
    arguments: tuple[Computation, ...]
    last: Computation
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self.task.output_schema.derived)

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        """As `Computation.run`.

        Raises:
            InvalidInputError: a function is not allowed here, or its code is not the query's.
            InternalError: a function failed; names the function and the tuple.
        """
        for function in self.task.functions:  # before anything is computed
            self.executor.functions.find(function)
        given = await self._rows(files, after, upto, interval)
        rows, cpu_s = given.table, given.cpu_s
        of_one = Interval(after, upto) if self.task.has_state else interval
        for number, stage in enumerate(self.stages.stages):
            if number:
                result = await self._computed(self.arguments[number], stage.task, rows, of_one)
                rows, cpu_s = result.table, cpu_s + result.cpu_s
            for call in stage.calls:
                results, seconds = await self.executor.results(call, rows)
                rows, cpu_s = rows.append_column(call.output, results), cpu_s + seconds
        last = self.stages.last
        if is_projection(last.steps):
            made = await trio.to_thread.run_sync(_projected, last, rows, self.schema)
            return Result(made.table, cpu_s + made.cpu_s)
        result = await self._computed(self.last, last, rows, of_one)
        return Result(result.table, cpu_s + result.cpu_s)

    async def _rows(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        """The rows of the first stage."""
        first = self.stages.stages[0]
        if is_projection(first.task.steps):
            paths = [path for name in first.task.inputs for path in files.get(name, ())]
            return await trio.to_thread.run_sync(_read, first, paths, interval)
        return await self.arguments[0].run(files, after, upto, interval)

    async def _computed(
        self, computation: Computation, part: Task, rows: pa.Table, interval: Interval
    ) -> Result:
        """The results of a part over rows."""
        if not rows.num_rows:
            return Result(part.output_schema.derived.empty_table(), 0.0)
        folder = await trio.to_thread.run_sync(self.executor.rows_between, rows)
        try:
            files = {part.inputs[0]: [Path(folder.name, ROWS_FILE)]}
            return await computation.run(files, interval.lo, interval.hi, interval)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(folder.cleanup)


def _read(stage: Stage, paths: Sequence[Path], interval: Interval) -> Result:
    """The rows of a stage that only chooses fields; it needs no job."""
    began_s = time.thread_time()
    schema = stage.task.output_schema.derived
    (step,) = stage.task.steps
    assert step.projection is not None, "it only chooses fields"
    wanted = {each.name for _, each in step.projection} - {STIME}
    columns = [STIME, *sorted(wanted)]
    parts = [schema.empty_table()]
    parts += [
        _chosen(step.projection, rows, schema)
        for path in paths
        for rows in _groups(path, columns, interval)
    ]
    rows = canonical(pa.concat_tables(parts), schema)
    return Result(rows, time.thread_time() - began_s)


def _groups(path: Path, columns: Sequence[str], interval: Interval) -> Iterator[pa.Table]:
    """The rows of a file that are within the interval."""
    with reading(path) as parquet:
        for group in range(parquet.num_row_groups):
            ends = parquet.metadata.row_group(group).column(0).statistics
            if ends.max > interval.lo and ends.min <= interval.hi:
                rows = read_group(parquet, group, columns)
                yield between(rows, interval.lo, interval.hi)


def _projected(part: Task, rows: pa.Table, schema: pa.Schema) -> Result:
    began_s = time.thread_time()
    (step,) = part.steps
    assert step.projection is not None, "it only chooses fields"
    made = canonical(_chosen(step.projection, rows, schema), schema)
    return Result(made, time.thread_time() - began_s)


def _chosen(fields: Sequence[tuple[str, FieldRef]], rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The fields that a projection chooses, under their new names."""
    columns = [rows.column(STIME)]
    for _, each in fields:
        column = rows.column(each.name)
        columns.append(column.cast(pa.timestamp("us", tz="UTC")) if is_time(each) else column)
    return pa.table(columns, names=[STIME, *(name for name, _ in fields)]).cast(schema)


def _remove_left(folder: Path) -> None:
    for left in folder.glob(f"{BETWEEN}*"):
        shutil.rmtree(left, ignore_errors=True)


@asynccontextmanager
async def calling(
    executor: Executor, functions: Functions, folder: Path
) -> AsyncIterator[CallingExecutor]:
    """Open a `CallingExecutor`; when the block ends, the functions' processes have ended.

    Args:
        folder: see `CallingExecutor`; files that a killed process left there are removed.
    """
    made = CallingExecutor(executor, functions, folder)
    await trio.to_thread.run_sync(_remove_left, folder)
    try:
        yield made
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(made.close)
