"""The executor on Spark: it starts Spark when it is first needed, and again when it dies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

import trio

from engine.spark.config import LARGE_BYTES, SparkConfig
from engine.spark.sharing import Sharing
from engine.tasks.execution import Executor, Result
from engine.tasks.plan import Task
from engine.tasks.revisions.tasks import by_arrival
from engine.tasks.windows import Interval
from overlay.errors import InternalError, MedusaError
from overlay.events import Events

if TYPE_CHECKING:  # a peer that computes nothing does not wait for PySpark, nor keep it in memory
    from pyspark.sql import SparkSession

    from engine.spark.program import Program
    from engine.spark.session import Spark
    from engine.spark.shared_jobs import Order, SharedJob

__all__ = ["Executor", "SparkExecutor", "open_executor"]

T = TypeVar("T")

JOBS_AT_ONCE = 8
"""Threads that wait for Spark: more than the cores of a small peer, so that planning overlaps."""


class SparkExecutor:
    """Runs jobs on the one Spark of this peer.

    Args:
        make: makes that Spark, in a worker thread, before the first job: it imports PySpark.
        nursery: runs the jobs of several tasks; lives as long as this.

    Attributes:
        state: off, starting, running, lost or failed, for the monitor.
        trouble: why it could not start the last time, and the remedy; else empty.
    """

    def __init__(self, make: Callable[[], Spark], events: Events, nursery: trio.Nursery) -> None:
        self._make = make
        self._spark: Spark | None = None
        self._events = events
        self._starting = trio.Lock()
        self._sharing = Sharing(self._run_shared, nursery)
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
                await self.compile(task).rehearse()
        except MedusaError as error:
            self._events.note("error", f"cannot compute yet: {self.trouble or error}")

    def compile(self, task: Task) -> SparkComputation:
        """Make a task ready to run, epoch by epoch."""
        return SparkComputation(self, task)

    async def run(self, job: Callable[[SparkSession], T]) -> T:
        """Run `job` in a worker thread.

        Raises:
            SparkLostError: the JVM died meanwhile; the next call starts another.
        """
        spark = await self._ensure_running()
        from engine.spark.session import SparkLostError  # imported by now: it was made

        try:
            return await trio.to_thread.run_sync(
                spark.run, job, limiter=self._threads, abandon_on_cancel=True
            )
        except SparkLostError:
            # a job of the previous JVM may fail only after the next JVM has started
            if self.state == "running" and not spark.alive:
                self.state = "lost"
                self._events.note("warning", "lost Spark's JVM; starting another")
            raise

    async def compute(self, program: Callable[[], Program], order: Callable[[], Order]) -> Result:
        """Compute an epoch: in one job with the tasks that are due now, or alone.

        Raises:
            As `run`.
        """
        spark = await self._ensure_running()
        asked = order()
        if spark.shares and (kind := kind_of(asked)) is not None:
            result = await self._sharing.compute(*kind, asked)
            if result is not None:
                return result
        task = asked.task
        try:
            result = await self.run(
                lambda session: program().run(
                    session, asked.files, asked.after, asked.upto, asked.interval
                )
            )
        except MedusaError:
            self._sharing.note(task, failed=True)
            raise
        self._sharing.note(task, failed=False)
        return result

    async def _run_shared(self, job: SharedJob, orders: list[Order]) -> list[Result | None]:
        def shared(session: SparkSession) -> list[Result | None]:
            try:
                return job.run(session, orders)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise InternalError(f"a job of {len(orders)} tasks failed: {error}") from error

        return await self.run(shared)

    async def _ensure_running(self) -> Spark:
        async with self._starting:
            if self._spark is None:
                self._spark = await trio.to_thread.run_sync(self._make)
            if self.state == "running":
                return self._spark
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
            return self._spark

    def stop(self) -> None:
        """Stop the JVM (blocking, a second or two)."""
        if self._spark is not None:
            self._spark.stop()


class SparkComputation:
    """One task as a Spark job; see `engine.tasks.execution.Computation`."""

    def __init__(self, executor: SparkExecutor, task: Task) -> None:
        self._executor = executor
        self._task = task
        self._program: Program | None = None

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        def order() -> Order:
            from engine.spark.shared_jobs import Order  # PySpark is imported by now

            return Order(self._task, files, after, upto, interval)

        return await self._executor.compute(self._compiled, order)

    async def rehearse(self) -> None:
        """Compute the task over blank tuples. Raises: as `run`."""
        with TemporaryDirectory() as folder:
            blank = await trio.to_thread.run_sync(self._blank_epoch, Path(folder))
            await self.run(*blank)

    def _blank_epoch(self, folder: Path) -> tuple[Mapping[str, Sequence[Path]], int, int, Interval]:
        from engine.spark.program import blank_epoch  # in a worker thread: see `_compiled`

        return blank_epoch(self._task, folder)

    def _compiled(self) -> Program:
        from engine.spark.program import Program  # in a worker thread: this takes a while

        if self._program is None:
            self._program = Program(self._task)
        return self._program


@asynccontextmanager
async def open_executor(
    config: SparkConfig, logs: Path, events: Events
) -> AsyncIterator[SparkExecutor]:
    """Open an executor; when the block ends its JVM, if there was one, has ended."""

    def make() -> Spark:
        from engine.spark.session import Spark

        return Spark(config, logs)

    async with trio.open_nursery() as nursery:
        executor = SparkExecutor(make, events, nursery)
        try:
            yield executor
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(executor.stop)


def kind_of(order: Order) -> tuple[Hashable, Callable[[], SharedJob]] | None:
    """The group of the tasks that can be in one job with an order, and how to make their job. None:
    it has to run alone."""
    from engine.spark import rows, shared_jobs, shared_rows, shared_windows

    task = order.task
    if not order.paths or sum(map(shared_jobs.bytes_of, order.paths)) >= LARGE_BYTES:
        return None
    fields = rows.merged_fields(task.input_schemas)
    if task.window is not None:
        key = (fields, shared_windows.what(task), by_arrival(task))
        return key, lambda: shared_windows.SharedWindows(task)
    if not shared_rows.fits(task):
        return None
    return (fields, task.inputs), lambda: shared_rows.SharedRows(task)
