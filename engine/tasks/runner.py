"""Runs one task, epoch after epoch, from the boundary of its output log.

That boundary is the whole state. A runner that is stopped, killed or moved leaves it, and the next
one goes on from it. A task is a pure function of its input, so nothing is lost or repeated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import trio

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.epochs import JOB_BYTES, EpochDamagedError
from medusa.engine.streams.load import LoadMeter, Pacer, Rate
from medusa.engine.streams.log import StreamLog
from medusa.engine.streams.recent import Epoch
from medusa.engine.streams.retention import Hold
from medusa.engine.tasks.execution import Editions, Executor, Result
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.status import TaskStatus
from medusa.engine.tasks.waiting import waiting
from medusa.engine.tasks.windows import Interval, needed_after, needs, read_from, whole_after
from medusa.overlay.concurrency import Watched
from medusa.overlay.errors import InternalError, MedusaError, NotRetainedError
from medusa.overlay.events import Events
from medusa.overlay.killpoints import KillPoint, kill_point
from medusa.overlay.log import bound

RETRY_S: Final = (0.1, 0.5, 2.0, 5.0)
"""Waits before a failed epoch is tried again, seconds; the last one repeats."""

QUICKER: Final = 0.8
"""Shortest epoch of a task, in epochs of its inputs: a task that begins at a bad moment waits less
each time. At the same pace its wait would stay."""


def count_all(task: Task, log: StreamLog, after: int, upto: int) -> int:
    """The number of tuples of one input with after < stime <= upto that the task reads.

    Raises:
        NotRetainedError: the log does not have all of them, any more or yet: a worker is paid by
            this number, so they must not count as none.
    """
    after, upto = max(after, task.after), min(upto, task.until)
    if after >= upto:
        return 0
    if log.boundary < upto:
        raise NotRetainedError(f"the stream is here up to {log.boundary}, not up to {upto}")
    return log.count(log.start if after == BEGINNING else after, upto)


class TaskRunner:
    """Drives one task.

    Args:
        task: the one to run.
        inputs: a log by input stream; kept by others, only held and read here.
        output: the log to append to; its boundary is the task's whole position.

    Attributes:
        task: as it is now; see `modify`.
        limit: the boundary that it may not pass for now.
    """

    def __init__(
        self,
        task: Task,
        *,
        inputs: Mapping[str, StreamLog],
        output: StreamLog,
        executor: Executor,
        config: EngineConfig,
        events: Events,
    ) -> None:
        self.task = task
        self.limit = Watched(END)
        self._inputs = inputs
        self._output = output
        self._executor = executor
        self._config = config
        self._events = events
        self._editions = Editions(executor)
        self._pacer = Pacer(QUICKER * config.epoch_s)
        self._rows = Rate()
        self._load = LoadMeter()
        self._epochs = 0
        self._epoch_s = 0.0
        self._state = "waiting"
        self._reason = ""
        self._runs = False
        self._waiting_since = trio.current_time()

    async def run(self) -> None:
        """Go on until the output has ended; cancel to stop."""
        self._runs = True
        try:
            with bound(task=self.task.name):
                await self._run()
        finally:
            self._runs = False

    async def _run(self) -> None:
        self._note_missing()
        failures = 0
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
                await trio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1
            else:
                failures = 0
                self._epoch_s = self._pacer.finished(trio.current_time())
                self._state, self._reason = "waiting", ""

    def _note_missing(self) -> None:
        """Note that the newest files of the output are gone, if inputs are not kept for what it
        needs next: while it had those files it needed no more."""
        begins = [
            log.start
            for name, log in self._inputs.items()
            if name not in self.task.tables and log.start > self.needed(name) > BEGINNING
        ]
        if begins:
            self._output.miss(whole_after(self.task, max(begins)))

    async def suspect(self, error: MedusaError) -> None:
        """Look whether a damaged input made a job fail, which Spark does not say."""
        if isinstance(error, EpochDamagedError):
            for log in self._inputs.values():
                log.find_damaged(error.path)
        elif isinstance(error, InternalError) and str(error) != self._reason:
            needed = needed_after(self.task, self._output.boundary)
            for log in self._inputs.values():
                with suppress(MedusaError):  # the next reader reports a failing disk
                    await log.verify(max(needed, log.start), END)

    async def recompute(self, after: int, upto: int) -> AsyncGenerator[Epoch, None]:
        """Compute the output over (after, upto] again, for a log that has lost it.

        Raises:
            NotRetainedError: its inputs are not kept so long, or it calls a function that may give
                other results now.
        """
        for function in self.task.functions:
            if not function.deterministic:
                raise NotRetainedError(
                    f"{self.task.name} calls {function.name}, which is not declared deterministic: "
                    "its results cannot be made again"
                )
        gone = any(
            log.start > needed_after(self.task, after, name) for name, log in self._inputs.items()
        )
        if gone or self.input_boundary < min(upto, self.task.until):
            raise NotRetainedError(f"the inputs of {self.task.name} are not kept for {after}")
        while after < upto:
            end = min(upto, self.task.edition_until(after))
            interval, table = self._interval(after, end), self._output.schema.empty_table()
            if interval is not None:
                table = (await self._job(after, end, interval)).table
            yield Epoch(after, end, table)
            after = end

    def reaches(self, boundary: int) -> bool:
        """Whether the task runs, and its next epoch can reach that boundary now."""
        reach = self._reach(self._output.boundary)
        return self._runs and min(reach, self.limit.value) >= boundary

    def modify(self, task: Task) -> None:
        """Go on with another edition. Call it while the task stands still, unless both editions
        make the same next tuples."""
        self.task = task
        self.hold()

    def note_cost(self, cpu_s: float) -> None:
        """Count CPU seconds that were spent for the task beside its epochs."""
        self._load.add(0, cpu_s, trio.current_time())

    async def rehearse(self, boundary: int) -> None:
        """Compute the open windows once, and drop the result: the next epoch finds Spark started,
        its code compiled, and the inputs read. A failure is ignored: the next epoch fails too.

        Args:
            boundary: waits until the inputs have reached it.
        """
        await self.wait_for_inputs(boundary)
        await self._executor.prepare()
        interval = None if self.task.window is None else self._interval(boundary, END)
        if interval is not None:
            with suppress(MedusaError):
                await self._job(boundary, END, interval)

    async def wait_for_inputs(self, boundary: int) -> None:
        """Wait until all inputs have that boundary or the task's end; ClosedError if one closes."""
        for log in self._inputs.values():
            await log.wait_beyond(min(boundary, self.task.until) - 1)

    def hold(self) -> None:
        """Keep the part of the inputs that the next epoch may need."""
        for name, log in self._inputs.items():
            log.hold(self._consumer, self.needed(name))

    def needed(self, stream: str) -> int:
        """The boundary after which the next epoch may need an input."""
        return max(needed_after(self.task, self._output.boundary, stream), self.task.after)

    def release(self) -> None:
        """Let go of the inputs."""
        for log in self._inputs.values():
            log.release(self._consumer)

    @property
    def input_boundary(self) -> int:
        """The boundary that all inputs have, microseconds; at most the task's end."""
        return min(self.task.until, *(log.boundary for log in self._inputs.values()))

    @property
    def input_bytes(self) -> int:
        """The bytes of the inputs' logs, on disk."""
        return sum(log.bytes for log in self._inputs.values())

    @property
    def reason(self) -> str:
        """Why it fails; else empty."""
        return self._reason

    def followed(self, after: int) -> None:
        """Note that the output after a boundary came from another peer that computes it.

        The load model tells from the input rows how much the task would need here.
        """
        self.hold()
        with suppress(NotRetainedError):
            self._load.add_elsewhere(self.count(after, self._output.boundary), trio.current_time())

    def read_elsewhere(self, rows: float) -> None:
        """Note the input rows that another peer says it has read since the last call."""
        self._load.add_elsewhere(rows, trio.current_time())

    @property
    def predicted_load(self) -> float:
        """Cores that it would need here now, while another peer computes it."""
        return self._load.predicted(trio.current_time())

    @property
    def load(self) -> float:
        """Cores that it takes here now."""
        return self._load.load(trio.current_time())

    @property
    def input_rate(self) -> float:
        """Input rows per second."""
        return self._load.rate(trio.current_time())

    @property
    def cost_ns(self) -> int:
        """CPU nanoseconds an input row; 0 before any row."""
        return self._load.cost_ns

    def expect(self, load: float, rate: float) -> None:
        """Assume the load it had elsewhere, until it is measured here: cores, rows/s."""
        if load > 0:
            self._load.expect(load, rate, trio.current_time())

    def count(self, after: int, upto: int) -> int:
        """Input tuples with after < stime <= upto.

        Raises:
            NotRetainedError: they are not all here, any more or yet.
        """
        return sum(count_all(self.task, log, after, upto) for log in self._inputs.values())

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
        if self._output.boundary == END:  # also after a restart, where nothing runs any more
            state, reason = "ended", ""
        inputs = {name: log.boundary for name, log in self._inputs.items()}
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
            load=self.load,
            rate=self._rows.read(now),
            state=state,
            reason=reason,
            input_rate=self.input_rate,
            cost_ns=self.cost_ns,
            worker=worker,
            owner=owner,
            waits=waits,
        )

    @property
    def _consumer(self) -> Hold:
        return Hold("task", self.task.name)

    async def _wait_for_input(self) -> None:
        """Wait until all inputs are beyond the output's boundary (SUnion), or at the task's end."""
        self._waiting_since = trio.current_time()
        for log in self._inputs.values():
            await log.wait_beyond(min(self._output.boundary, self.task.until - 1))
        boundary = self._output.boundary
        await self.limit.until(lambda upto: boundary < upto or boundary >= END)

    @kill_point(KillPoint.TASK_RUN_EPOCH)
    async def _run_epoch(self) -> None:
        if self._output.boundary == BEGINNING:
            self._begin()
        after = self._output.boundary
        if after >= self.task.until:  # open windows cannot become whole
            await self._output.commit(END, None)
            self.hold()
            return
        upto = self._choose_boundary(after)
        if upto <= after:
            return
        interval = self._interval(after, upto)
        if interval is None:
            cpu_s = await self._output.commit(upto, None)
        else:
            self._state = "running"
            cpu_s = await self._compute(after, upto, interval)
        rows = sum(log.count(max(after, log.start), upto) for log in self._inputs.values())
        self._load.add(rows, cpu_s, trio.current_time())
        self._epochs += 1
        self.hold()

    def _begin(self) -> None:
        """Begin the output. If an input is not kept, or not read, from its beginning, the output
        begins with the first window that can be whole."""
        origin = max(self.task.after, *(log.oldest for log in self._inputs.values()))
        if origin > BEGINNING:
            self._output.begin(whole_after(self.task, origin))

    def _choose_boundary(self, after: int) -> int:
        """The end of the next epoch, within one edition."""
        return min(self._reach(after), self.task.edition_until(after), self.limit.value)

    def _reach(self, after: int) -> int:
        """The smallest boundary of the inputs, within one job's limits and the task's end."""
        rows = max(1, self._config.epoch_rows // len(self._inputs))
        size = JOB_BYTES // len(self._inputs)
        reach = min(log.reach(after, rows, size) for log in self._inputs.values())
        return min(reach, self.task.until)

    def _interval(self, after: int, upto: int) -> Interval | None:
        known = (log.first_stime for log in self._inputs.values())
        first = min((stime for stime in known if stime is not None), default=None)
        return None if first is None else needs(self.task, after, upto, first)

    async def _compute(self, after: int, upto: int, interval: Interval) -> float:
        """Compute and commit one epoch; returns the CPU seconds."""
        result = await self._job(after, upto, interval)
        commit_s = await self._output.commit(upto, result.table)
        self._rows.add(result.table.num_rows, trio.current_time())
        return result.cpu_s + commit_s

    async def _job(self, after: int, upto: int, interval: Interval) -> Result:
        with ExitStack() as pins:
            files: dict[str, list[Path]] = {
                name: pins.enter_context(
                    log.files(
                        max(read_from(self.task, name, after, interval), log.start), interval.hi
                    )
                )
                for name, log in self._inputs.items()
            }
            if self.task.recalls:
                own = self._output.files(self._output.start, after)
                files[self.task.output] = pins.enter_context(own)
            computation = self._editions.computation(self.task, after)
            return await computation.run(files, after, upto, interval)

    def _note_failure(self, error: MedusaError) -> None:
        told = self._reason == str(error) or self._executor.trouble
        if not told:  # once, not at every try
            fault = error if isinstance(error, InternalError) else None
            self._events.note("error", f"could not compute {self.task.name}: {error}", fault)
        self._state, self._reason = "failing", str(error)
