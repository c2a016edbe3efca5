"""The executor on Spark: it starts Spark when it is first needed, and again when it dies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import trio

from medusa.engine.operators.shared.step import Interval, JobSharing
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.sharing import Sharing
from medusa.engine.spark.workforce import LOOK_S, Workforce
from medusa.engine.tasks.execution import Executor, Result
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.revised_tasks import by_arrival
from medusa.overlay.errors import InternalError, MedusaError
from medusa.overlay.events import Events

if TYPE_CHECKING:  # a peer that computes nothing need not import PySpark
    from pyspark.sql import SparkSession

    from medusa.engine.spark.program import Program
    from medusa.engine.spark.session import Spark
    from medusa.engine.spark.shared_jobs import Order, SharedJob

__all__ = ["Executor", "SparkExecutor", "open_executor"]

T = TypeVar("T")

JOBS_AT_ONCE = 8
"""Threads that wait for Spark: more than the cores of a small peer, so that planning overlaps."""

Epoch = tuple[Mapping[str, Sequence[Path]], int, int, Interval]
"""The arguments of a run; see `medusa.engine.tasks.execution.Computation`."""

Kind = tuple[Hashable, Callable[[], "SharedJob"]]
"""A group of tasks that can be in one job, and how to make the job."""


class AnySpark(Protocol):
    """The common interface of a Spark with a JVM of ours, and of a session at a Connect server."""

    @property
    def alive(self) -> bool: ...

    @property
    def shares(self) -> bool: ...

    def start(self) -> None: ...

    def restart(self) -> None: ...

    def stop(self) -> None: ...

    def run(self, job: Callable[[SparkSession], T]) -> T: ...


class SparkExecutor:
    """Runs jobs on the one Spark of this peer.

    Args: make: makes the Spark, in a worker thread before the first job, because it imports
    PySpark.
        warm_up: a folder that all executors can read, for the tuples of warm-ups. nursery: runs the
        jobs of several tasks; lives as long as this object. workforce: the executors, if a cluster
        provides them; see `watch`.

    Attributes:
        state: off, starting, running, lost or failed, for the monitor.
    """

    def __init__(
        self,
        make: Callable[[], AnySpark],
        events: Events,
        warm_up: Path,
        nursery: trio.Nursery,
        workforce: Workforce | None = None,
    ) -> None:
        self._make = make
        self._warm_up = warm_up
        self._workforce = workforce
        self._spark: AnySpark | None = None
        self._events = events
        self._starting = trio.Lock()
        self._sharing = Sharing(self._run_shared, nursery)
        self._threads = trio.CapacityLimiter(JOBS_AT_ONCE)
        self.state = "off"
        self._no_start = ""

    @property
    def trouble(self) -> str:
        """Why Spark could not start the last time, or for what its jobs wait; else empty."""
        return self._no_start or ("" if self._workforce is None else self._workforce.trouble)

    async def prepare(self, tasks: Sequence[Task] = ()) -> None:
        """Start Spark ahead of the first job, and compute these tasks once over blank tuples: then
        none of their jobs waits for the JVM, or for the loading of classes and the compilation of
        code. A failure is only noted: the job that needs Spark raises it."""
        try:
            await self._ensure_running()
            for task in tasks:
                await self.compile(task).warm_up(self._warm_up)
        except MedusaError as error:
            self._events.note("error", f"cannot compute yet: {self.trouble or error}")

    def compile(self, task: Task) -> SparkComputation:
        """Make a task ready to run, epoch by epoch."""
        return SparkComputation(self, task)

    async def run(self, job: Callable[[SparkSession], T]) -> T:
        """Run `job` in a worker thread.

        Raises:
            SparkLostError: Spark was lost meanwhile; the next call starts it again.
        """
        spark = await self._ensure_running()
        # pyspark is imported already: Spark was made
        from medusa.engine.spark.session import SparkLostError

        try:
            return await trio.to_thread.run_sync(
                spark.run, job, limiter=self._threads, abandon_on_cancel=True
            )
        except SparkLostError:
            # a job of the previous JVM may fail only after the next JVM has started
            if self.state == "running" and not spark.alive:
                self.state = "lost"
                self._events.note("warning", "lost Spark; starting it again")
            raise

    async def compute(self, computation: SparkComputation, asked: Epoch) -> Result:
        """Compute an epoch: in one job with the tasks that are due now, or alone.

        Raises:
            As `run`. InternalError: a bug; the task fails with it, and no other does.
        """
        try:
            return await self._compute(computation, asked)
        except MedusaError:
            raise
        except Exception as error:
            raise InternalError(self._noted_once(computation, error)) from error

    def _noted_once(self, computation: SparkComputation, error: Exception) -> str:
        """The message of a bug: equal each time that the task meets the bug, and logged once."""
        met, text = computation.bug
        if met != repr(error):
            cause = self._events.fault(f"failed to compute {computation.task.name}", error)
            text = f"its job met a bug; {self._events.why(cause)}"
            computation.bug = repr(error), text
        return text

    async def _compute(self, computation: SparkComputation, asked: Epoch) -> Result:
        spark = await self._ensure_running()
        if spark.shares:
            from medusa.engine.spark.shared_jobs import (  # PySpark is imported already
                Order,
                is_small,
            )

            order = Order(computation.task, *asked)
            if is_small(order.paths) and (kind := await computation.kind()) is not None:
                result = await self._sharing.compute(*kind, order)
                if result is not None:
                    return result
        try:
            result = await self.run(lambda session: computation.alone(session, asked))
        except MedusaError:
            self._sharing.note(computation.task, failed=True)
            raise
        self._sharing.note(computation.task, failed=False)
        return result

    async def _run_shared(self, job: SharedJob, orders: list[Order]) -> list[Result | None]:
        def shared(session: SparkSession) -> list[Result | None]:
            try:
                return job.run(session, orders)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise InternalError(f"a job of {len(orders)} tasks failed: {error}") from error

        return await self.run(shared)

    async def _ensure_running(self) -> AnySpark:
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
                # the job was cancelled, because the peer ends
                await trio.lowlevel.checkpoint_if_cancelled()
                self.state, self._no_start = "failed", f"Spark does not start: {error}"
                raise
            except BaseException:
                self.state = "lost"
                raise
            self.state, self._no_start = "running", ""
            self._events.note("info", "started Spark")
            return self._spark

    async def watch(self, workforce: Workforce) -> None:
        """Note changes in the executors of a cluster; if it provides none, register the application
        anew."""
        while True:
            await trio.sleep(LOOK_S)
            # the executors of a Connect server are not ours
            spark = cast("Spark | None", self._spark)
            if spark is None or self.state != "running":
                workforce.anew()
                continue
            try:
                count = await trio.to_thread.run_sync(spark.executors, abandon_on_cancel=True)
            except MedusaError:  # the JVM is gone: the next job reports it
                continue
            now = trio.current_time()
            for note in workforce.seen(count, self._threads.borrowed_tokens, now):
                self._events.note(note.level, note.text)
            if workforce.is_over(now):
                self.state = "lost"
                self._events.note("warning", "waits no longer for an executor: starts Spark anew")
                await trio.to_thread.run_sync(spark.give_up)

    def stop(self) -> None:
        """Stop the JVM (blocking, a second or two)."""
        if self._spark is not None:
            self._spark.stop()


class SparkComputation:
    """One task as a Spark job; see `medusa.engine.tasks.execution.Computation`."""

    def __init__(self, executor: SparkExecutor, task: Task) -> None:
        self.task = task
        self.bug = ("", "")
        self._executor = executor
        self._program: Program | None = None
        self._kind: Kind | None = None
        self._looked = False

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        return await self._executor.compute(self, (files, after, upto, interval))

    async def kind(self) -> Kind | None:
        """See `kind_of`."""
        if not self._looked:
            self._kind = await trio.to_thread.run_sync(kind_of, self.task)
            self._looked = True
        return self._kind

    def alone(self, session: SparkSession, epoch: Epoch) -> Result:
        """Compute an epoch of this task alone; blocking."""
        return self._compiled().run(session, *epoch)

    async def warm_up(self, within: Path) -> None:
        """Compute the task over blank tuples.

        Args:
            within: a folder for these tuples that all executors can read.

        Raises:
            As `run`.
        """

        def folder_within() -> TemporaryDirectory[str]:
            within.mkdir(exist_ok=True)
            return TemporaryDirectory(dir=within)

        with await trio.to_thread.run_sync(folder_within) as folder:
            blank = await trio.to_thread.run_sync(self._blank_epoch, Path(folder))
            await self.run(*blank)

    def _blank_epoch(self, folder: Path) -> Epoch:
        from medusa.engine.spark.program import blank_epoch  # in a worker thread: see `_compiled`

        return blank_epoch(self.task, folder)

    def _compiled(self) -> Program:
        from medusa.engine.spark.program import Program  # in a worker thread: this takes a while

        if self._program is None:
            self._program = Program(self.task)
        return self._program


@asynccontextmanager
async def open_executor(
    config: SparkConfig, warm_up: Path, logs: Path, events: Events
) -> AsyncIterator[SparkExecutor]:
    """Open an executor; at the end of the block its JVM, if any, has ended.

    Args:
        warm_up: see `SparkExecutor`. logs: the folder for the JVM's log.
    """

    ours: list[Spark] = []

    def make() -> AnySpark:
        if config.remote:
            from medusa.engine.spark.connect import ConnectSpark

            return ConnectSpark(config)
        from medusa.engine.spark.session import Spark

        ours.append(Spark(config, logs))
        return ours[0]

    async def give_up_start_in_the_end() -> None:
        """Give up a start of the JVM at the end: its thread cannot be cancelled, and would delay
        the end for seconds."""
        try:
            await trio.sleep_forever()
        finally:
            for spark in ours:
                spark.give_up_start()

    workforce = None if config.local or config.remote else Workforce(config.master, config.patience)
    async with trio.open_nursery() as nursery:
        executor = SparkExecutor(make, events, warm_up, nursery, workforce)
        nursery.start_soon(give_up_start_in_the_end)
        if workforce is not None:
            nursery.start_soon(executor.watch, workforce)
        try:
            yield executor
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(executor.stop)


def kind_of(task: Task) -> Kind | None:
    """The group of the tasks that can be in one job with a task, and how to make that job. None: it
    always runs alone. Blocking: it imports PySpark."""
    from medusa.engine.dataframes import rows
    from medusa.engine.spark import shared_matches, shared_panes, shared_rows

    if task.sided:
        return None  # the inputs of the task have different fields
    fields = rows.merged_fields(task.input_schemas)
    state = next((step for step in task.steps if step.reach is not None or step.recalls), None)
    if state is None:
        if not shared_rows.fits(task):
            return None
        return (fields, task.inputs), lambda: shared_rows.SharedRows(task)
    match state.sharing:
        case JobSharing.WINDOWS:
            key = (fields, shared_panes.what(task), by_arrival(task))
            return key, lambda: shared_panes.SharedWindows(task)
        case JobSharing.MATCHES:
            pattern = (fields, task.steps, by_arrival(task))
            return pattern, lambda: shared_matches.SharedMatches(task)
        case JobSharing.NONE:
            return None
