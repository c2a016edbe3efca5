"""The executor on Spark: it starts Spark when it is first needed, and again when it dies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio
from pyspark.sql import SparkSession

from engine.spark.config import SparkConfig
from engine.spark.program import Program
from engine.spark.session import Spark, SparkLostError
from engine.tasks.execution import Executor, Result
from engine.tasks.plan import Task
from engine.tasks.windows import Interval
from overlay.errors import MedusaError
from overlay.events import Events

__all__ = ["Executor", "SparkExecutor", "open_executor"]

T = TypeVar("T")

JOBS_AT_ONCE = 8
"""Threads that wait for Spark: more than the cores of a small peer, so that planning overlaps."""


class SparkExecutor:
    """Runs jobs on the one Spark of this peer.

    Attributes:
        state: off, starting, running, lost or failed, for the monitor.
        trouble: why it could not start the last time, and the remedy; else empty.
    """

    def __init__(self, spark: Spark, events: Events) -> None:
        self._spark = spark
        self._events = events
        self._starting = trio.Lock()
        self._threads = trio.CapacityLimiter(JOBS_AT_ONCE)
        self.state = "off"
        self.trouble = ""

    async def prepare(self, tasks: Sequence[Task] = ()) -> None:
        """Start Spark ahead of the first job, and compute these tasks once over blank tuples: then
        no job of theirs waits for the JVM, nor for classes and code of its own. A failure is only
        noted: the job that needs Spark raises it."""
        try:
            await self._ensure_running()
            for task in tasks:
                await self.run(Program(task).rehearse)
        except MedusaError as error:
            self._events.note("error", f"cannot compute yet: {self.trouble or error}")

    def compile(self, task: Task) -> SparkComputation:
        """Make a task ready to run, epoch by epoch."""
        return SparkComputation(self, Program(task))

    async def run(self, job: Callable[[SparkSession], T]) -> T:
        """Run `job` in a worker thread.

        Raises:
            SparkLostError: the JVM died meanwhile; the next call starts another.
        """
        await self._ensure_running()
        try:
            return await trio.to_thread.run_sync(
                self._spark.run, job, limiter=self._threads, abandon_on_cancel=True
            )
        except SparkLostError:
            if self.state == "running":
                self.state = "lost"
                self._events.note("warning", "lost Spark's JVM; starting another")
            raise

    async def _ensure_running(self) -> None:
        async with self._starting:
            if self.state == "running":
                return
            start = self._spark.start if self.state == "off" else self._spark.restart
            self.state = "starting"
            try:
                await trio.to_thread.run_sync(start)
            except MedusaError as error:
                self.state, self.trouble = "failed", f"Spark does not start: {error}"
                raise
            except BaseException:
                self.state = "lost"
                raise
            self.state, self.trouble = "running", ""
            self._events.note("info", "started Spark")

    def stop(self) -> None:
        """Stop the JVM (blocking, a second or two)."""
        if self.state != "off":
            self._spark.stop()


class SparkComputation:
    """One task as a Spark job; see `engine.tasks.execution.Computation`."""

    def __init__(self, executor: SparkExecutor, program: Program) -> None:
        self._executor = executor
        self._program = program

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        return await self._executor.run(
            lambda session: self._program.run(session, files, after, upto, interval)
        )


@asynccontextmanager
async def open_executor(
    config: SparkConfig, logs: Path, events: Events
) -> AsyncIterator[SparkExecutor]:
    """Open an executor; when the block ends its JVM, if there was one, has ended."""
    executor = SparkExecutor(Spark(config, logs), events)
    try:
        yield executor
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(executor.stop)
