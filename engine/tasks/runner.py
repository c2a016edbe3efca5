"""Runs one task, epoch after epoch, from the boundary of its output log.

That boundary is the whole state. When a runner is stopped, killed or moved, the next one continues
from that boundary. A task is a pure function of its input, so nothing is lost or repeated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from random import SystemRandom  # noqa: TID251 - jitter in a driver
from typing import Final

import trio

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.shared.step import Interval
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.load import LoadMeter, Pacer, Rate
from medusa.engine.streams.log.epochs import EpochDamagedError
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.tasks.execution import Executor
from medusa.engine.tasks.inputs import TaskInputs
from medusa.engine.tasks.jobs import Jobs
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.status import TaskStatus
from medusa.engine.tasks.waiting import waiting
from medusa.overlay.backoff import Backoff
from medusa.overlay.concurrency import Watched
from medusa.overlay.errors import InternalError, MedusaError, NotRetainedError
from medusa.overlay.events import Events
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.log import bound

QUICKER: Final = 0.8
"""Shortest epoch of a task, in epochs of its inputs. So a task that begins at a bad moment waits
less each time; at the pace of its inputs its wait would stay the same."""


FIRST_RETRY_S: Final = 0.1
LONGEST_RETRY_S: Final = 5.0
"""The longest wait before a failed epoch is tried again, seconds."""


def retries() -> Backoff:
    """The waits between tries of one task's epochs."""
    return Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)


class TaskLoad:
    """The cost of a task, by trio's clock: measured here, or reported by the peer that computes
    it."""

    def __init__(self) -> None:
        self._meter = LoadMeter()

    def add(self, rows: int, cpu_s: float) -> None:
        """Count the input rows and the CPU seconds of an epoch, or of work beside its epochs."""
        self._meter.add(rows, cpu_s, trio.current_time())

    def read_elsewhere(self, rows: float) -> None:
        """Note the input rows that another peer has read since the last call; from them the load
        model computes how much the task would need here."""
        self._meter.add_elsewhere(rows, trio.current_time())

    def expect(self, load: float, rate: float) -> None:
        """Until the load is measured here, assume that of the former peer: cores, rows per
        second."""
        if load > 0:
            self._meter.expect(load, rate, trio.current_time())

    @property
    def predicted(self) -> float:
        """Cores that the task would need here now, while another peer computes it."""
        return self._meter.predicted(trio.current_time())

    @property
    def cores(self) -> float:
        """Cores that the task takes here now."""
        return self._meter.load(trio.current_time())

    @property
    def input_rate(self) -> float:
        """Input rows per second."""
        return self._meter.rate(trio.current_time())

    @property
    def cost_ns(self) -> int:
        """CPU nanoseconds for an input row; 0 before the task has read any."""
        return self._meter.cost_ns


class TaskRunner:
    """Drives one task.

    Args:
        jobs: compute its epochs.

    Attributes:
        inputs: the task's inputs. limit: the boundary that it may not pass for now. load: the load
            of the task.
    """

    def __init__(
        self,
        inputs: TaskInputs,
        jobs: Jobs,
        *,
        executor: Executor,
        config: EngineConfig,
        events: Events,
    ) -> None:
        self.inputs = inputs
        self.limit = Watched(END)
        self.load = TaskLoad()
        self._output = inputs.output
        self._jobs = jobs
        self._executor = executor
        self._config = config
        self._events = events
        self._pacer = Pacer(QUICKER * config.epoch_s)
        self._random = SystemRandom()
        self._rows = Rate()
        self._epochs = 0
        self._epoch_s = 0.0
        self._state = "waiting"
        self._reason = ""
        self._runs = False
        self._waiting_since = trio.current_time()

    @property
    def task(self) -> Task:
        """The task in its present form; see `modify`."""
        return self.inputs.task

    async def run(self) -> None:
        """Compute until the output has ended; cancel to stop."""
        self._runs = True
        try:
            with bound(task=self.task.name):
                await self._run()
        finally:
            self._runs = False

    async def _run(self) -> None:
        if (begins := self.inputs.begins_whole) is not None:
            # while its newest files existed, it needed no older inputs, so these were dropped
            self._output.miss(begins)
        again = retries()
        while self._output.boundary < END:
            await self._wait_for_input()
            await self._executor.prepare()  # before the epoch's time is measured
            await trio.sleep(self._pacer.delay(trio.current_time()))
            self._pacer.started(trio.current_time())
            try:
                await self._run_epoch()
            except MedusaError as error:
                await self.suspect(error)
                self._note_failure(error)
                await trio.sleep(again.failed(self._random))
            else:
                again.succeeded()
                self._epoch_s = self._pacer.finished(trio.current_time())
                self._state, self._reason = "waiting", ""

    async def suspect(self, error: MedusaError) -> None:
        """Check whether a damaged input made a job fail, because Spark does not report this."""
        if isinstance(error, EpochDamagedError):
            self.inputs.find_damaged(error)
        elif isinstance(error, InternalError) and str(error) != self._reason:
            await self.inputs.verify()

    async def recompute(self, after: int, upto: int) -> AsyncGenerator[Epoch, None]:
        """Compute the output over (after, upto] again, for a log that has lost it.

        Raises:
            NotRetainedError: its inputs were dropped, or it calls a function that may return other
                results now.
        """
        for function in self.task.functions:
            if not function.deterministic:
                raise NotRetainedError(
                    f"{self.task.name} calls {function.name}, which is not declared deterministic: "
                    "its results cannot be made again"
                )
        self.inputs.check_kept(after, upto)
        while after < upto:
            end = min(upto, self.task.edition_until(after))
            interval, table = self._jobs.interval(after, end), self._output.schema.empty_table()
            if interval is not None:
                table = (await self._jobs.run(after, end, interval)).table
            yield Epoch(after, end, table)
            after = end

    def reaches(self, boundary: int) -> bool:
        """Whether the task runs, and its next epoch can reach that boundary now."""
        reach = self.inputs.reach(self._output.boundary, self._config.epoch_rows)
        return self._runs and min(reach, self.limit.value) >= boundary

    def modify(self, task: Task) -> None:
        """Continue with another edition. Call it while the task stands still, unless both editions
        make the same next tuples."""
        self.inputs.task = task
        self.inputs.hold()

    async def warm_up(self, boundary: int) -> None:
        """Compute the open windows once, and drop the result: so that Spark is started, the code
        compiled, and the inputs cached before the next epoch. A failure is ignored, because the
        next epoch reports it. Args: boundary: wait until the inputs have reached it.
        """
        await self.inputs.wait(boundary)
        await self._executor.prepare()
        interval = None if self.task.windows is None else self._jobs.interval(boundary, END)
        if interval is not None:
            with suppress(MedusaError):
                await self._jobs.run(boundary, END, interval)

    @property
    def reason(self) -> str:
        """Why it fails; else empty."""
        return self._reason

    def followed(self, after: int) -> None:
        """Note that the output after a boundary came from another peer that computes it.

        From the input rows the load model computes how much the task would need here.
        """
        self.inputs.hold()
        with suppress(NotRetainedError):
            self.load.read_elsewhere(self.inputs.count(after, self._output.boundary))

    def status(self, *, stopped: bool, worker: str = "", owner: str = "") -> TaskStatus:
        """The task as the monitor shows it. worker, owner: ids (hex) of other peers."""
        now = trio.current_time()
        state, reason = self._state, self._reason
        if trouble := self._executor.trouble:
            state, reason = "failing", trouble
        elif self._executor.state == "starting":
            state = "starting"
        if stopped or worker:
            state, reason = "stopped" if stopped else "away", ""
        if self._output.boundary == END:  # even after a restart, when no task runs any more
            state, reason = "ended", ""
        inputs = {name: log.boundary for name, log in self.inputs.logs.items()}
        waits = None
        if state == "waiting":
            waits = waiting(self.task, self._output.boundary, inputs, now - self._waiting_since)
        return TaskStatus(
            name=self.task.name,
            query=self.task.query,
            inputs=self.task.inputs,
            boundary=self._output.boundary,
            epochs=self._epochs,
            epoch_ms=1000 * self._epoch_s,
            load=self.load.cores,
            rate=self._rows.read(now),
            state=state,
            reason=reason,
            input_rate=self.load.input_rate,
            cost_ns=self.load.cost_ns,
            worker=worker,
            owner=owner,
            waits=waits,
        )

    async def _wait_for_input(self) -> None:
        self._waiting_since = trio.current_time()
        await self.inputs.wait_for_more()
        boundary = self._output.boundary
        await self.limit.until(lambda upto: boundary < upto or boundary >= END)

    @failpoint(Failpoint.TASK_RUN_EPOCH)
    async def _run_epoch(self) -> None:
        if self._output.boundary == BEGINNING and (begins := self._jobs.begins()) > BEGINNING:
            self._output.begin(begins)
        after = self._output.boundary
        if after >= self.task.until:  # open windows cannot become complete
            await self._output.commit(END, None)
            self.inputs.hold()
            return
        upto = self._choose_boundary(after)
        if upto <= after:
            return
        interval = self._jobs.interval(after, upto)
        if interval is None:
            cpu_s = await self._output.commit(upto, None)
        else:
            self._state = "running"
            cpu_s = await self._compute(after, upto, interval)
        self.load.add(self.inputs.count_kept(after, upto), cpu_s)
        self._epochs += 1
        self.inputs.hold()

    def _choose_boundary(self, after: int) -> int:
        """The end of the next epoch, within one edition."""
        reach = self.inputs.reach(after, self._config.epoch_rows)
        return min(reach, self.task.edition_until(after), self.limit.value)

    async def _compute(self, after: int, upto: int, interval: Interval) -> float:
        """Compute and commit one epoch; returns the CPU seconds."""
        result = await self._jobs.run(after, upto, interval)
        commit_s = await self._output.commit(upto, result.table)
        self._rows.add(result.table.num_rows, trio.current_time())
        return result.cpu_s + commit_s

    def _note_failure(self, error: MedusaError) -> None:
        told = self._reason == str(error) or self._executor.trouble
        if not told:  # noted once, not at every try
            fault = error if isinstance(error, InternalError) else None
            self._events.note("error", f"could not compute {self.task.name}: {error}", fault)
        self._state, self._reason = "failing", str(error)
