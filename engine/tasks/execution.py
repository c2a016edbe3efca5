"""Executors of tasks: Spark in production, others in tests and in the simulator.

A computation takes files and an interval, and returns the tuples of an epoch. The engine requires
that the result depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa

from medusa.engine.operators.shared.step import Interval
from medusa.engine.tasks.canonical import canonical
from medusa.engine.tasks.plan import Task
from medusa.overlay.events import Events


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    Attributes:
        table: the output's tuples in canonical order, as `output_schema.derived`.
        cpu_s: CPU seconds it took, all processes and threads together.
    """

    table: pa.Table
    cpu_s: float


class Computation(Protocol):
    """One task, ready to run."""

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        """The output over (after, upto].

        Args:
            files: per input stream, Parquet files that together hold its tuples of `interval`, each
                once; tuples outside it are ignored.
            interval: `medusa.engine.tasks.windows.needs` of (after, upto].

        Raises:
            MedusaError: the job failed; the same epoch may be tried again.
        """


class Executor(Protocol):
    """Computes the tasks of one peer."""

    @property
    def state(self) -> str:
        """off, starting, running, lost or failed, for the monitor."""

    @property
    def trouble(self) -> str:
        """Why the executor could not start, and the remedy; else empty."""

    async def prepare(self, tasks: Sequence[Task] = ()) -> None:
        """Get ready for the first job of these tasks. A failure is only noted, because the job
        raises it."""

    def compile(self, task: Task) -> Computation:
        """Make a task ready to run, epoch by epoch."""


OpenExecutor: TypeAlias = Callable[[Path, Events], AbstractAsyncContextManager[Executor]]
"""Opens a peer's executor, given the folder of its logs."""


class Editions:
    """A task's computations, one per edition of its query; each is compiled when first needed."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._compiled: list[tuple[Task, Computation]] = []

    def computation(self, task: Task, after: int) -> Computation:
        """The computation of the output after a boundary, up to `task.edition_until(after)`."""
        edition = task.at(after)
        for known, computation in self._compiled:
            if known == edition:
                return computation
        computation = self._compile(edition)
        current = [task.steps, *(each.steps for each in task.editions)]
        self._compiled = [each for each in self._compiled if each[0].steps in current]
        self._compiled.append((edition, computation))
        return computation

    def _compile(self, edition: Task) -> Computation:
        if not edition.former:
            return self._executor.compile(edition)
        now, before = replace(edition, former=()), replace(edition, steps=edition.former, former=())
        made = self._executor.compile(now), self._executor.compile(before)
        return _BothEditions(*made, edition.output_schema.derived)


@dataclass(frozen=True, slots=True)
class _BothEditions:
    """The panes of a window by two editions of its query, while windows of both are open.

    Attributes: now, before: the computations of the two editions. schema: the schema of panes,
    whose last field marks those of `before`.
    """

    now: Computation
    before: Computation
    schema: pa.Schema

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        """As `Computation.run`."""
        now = await self.now.run(files, after, upto, interval)
        before = await self.before.run(files, after, upto, interval)
        marks = pa.repeat(pa.scalar(value=True), before.table.num_rows)
        number = before.table.num_columns - 1
        marked = before.table.set_column(number, self.schema.field(number), marks)
        table = pa.concat_tables([now.table, marked])
        return Result(canonical(table, self.schema), now.cpu_s + before.cpu_s)
