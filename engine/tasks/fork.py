"""The fork of a task: it computes over the present inputs while the task has to wait.

A task's state is a suffix of its inputs, so there is nothing to copy: the fork reads the logs of
the inputs, and behind them their tentative suffixes. It writes the tentative suffix of the output.
The task does not know of it, and is never undone.

`Deadlines`, sans IO, has the moment from which a task may not wait for a missing input. It is the
Delay of Delay, Process and Correct (Balazinska et al., TODS 2008, section 5): tuples are kept
back for most of the user's bound, in case the missing input still comes. Then the fork makes
results without it. Only stable tuples wait so long: tentative ones have waited at an earlier task.
So a failure that is shorter than the bound has no effect, however long the chain of tasks behind
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import SystemRandom  # noqa: TID251 - jitter in a driver
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.shared.step import Interval
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.load import Pacer
from medusa.engine.streams.store.stream_state import StreamState
from medusa.engine.tasks.execution import Editions, Executor
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.runner import QUICKER, TaskRunner, retries
from medusa.engine.tasks.windows import needs, read_from
from medusa.overlay.concurrency import Bell, until_one_ends
from medusa.overlay.errors import MedusaError
from medusa.overlay.events import Events

ALPHA: Final = 0.9
"""The share of the bound for waiting; the rest is for the work itself (TODS 2008, and Borealis)."""

GRACE: Final = 0.05
"""The share of the bound for which tentative tuples wait for silent inputs, because the same
failure may make these tentative at the same moment."""

AHEAD: Final = 0.02
"""The share of the bound by which results may be computed early, in the same job as others: inputs
that arrive at nearly the same time must not cost a job each."""

MARKS: Final = 1_000
"""The most waiting boundaries of one input; boundaries that follow each other more closely count as
one."""


@dataclass(slots=True)
class _Mark:
    """A boundary that an input reached at `at`; its results must be ready at `due`, seconds."""

    boundary: int
    at: float
    due: float


@dataclass(slots=True)
class _Input:
    """An input's boundary, and the time since which it has it, seconds."""

    reached: int = BEGINNING
    advanced_at: float = float("-inf")
    stable: deque[_Mark] = field(default_factory=deque)
    tentative: deque[_Mark] = field(default_factory=deque)


class Deadlines:
    """The deadlines of one task. Times are seconds on one steady clock, boundaries microseconds.

    Args:
        inputs: the names of the inputs. bound_s: the bound that the user set, seconds. live_s:
            results wait for an input that has moved in the last `live_s` seconds.
    """

    def __init__(self, inputs: Iterable[str], bound_s: float, live_s: float) -> None:
        assert bound_s > 0, "without a bound nothing is ever due"
        self._inputs = {name: _Input() for name in inputs}
        self._wait_s = ALPHA * bound_s
        self._grace_s = GRACE * bound_s
        self._ahead_s = AHEAD * bound_s
        self._live_s = live_s
        self._spacing_s = self._wait_s / MARKS
        self._covered = BEGINNING

    def advanced(self, name: str, boundary: int, now: float, *, tentative: bool) -> None:
        """Note that an input has reached a boundary, by stable or by tentative tuples."""
        input_ = self._inputs[name]
        if boundary <= max(input_.reached, self._covered) or boundary == END:
            # an input that has ended brings nothing new, so it makes nothing due
            input_.reached = max(input_.reached, boundary)
            return
        input_.reached, input_.advanced_at = boundary, now
        marks = input_.tentative if tentative else input_.stable
        wait_s = self._grace_s if tentative else self._wait_s
        if marks and now - marks[-1].at < self._spacing_s:
            marks[-1].boundary = boundary
        else:
            marks.append(_Mark(boundary, now, now + wait_s))

    def covered(self, boundary: int) -> None:
        """Note that there are results up to a boundary, stable or tentative."""
        self._covered = max(self._covered, boundary)
        for input_ in self._inputs.values():
            for marks in (input_.stable, input_.tentative):
                while marks and marks[0].boundary <= self._covered:
                    marks.popleft()

    def due(self, now: float) -> int | None:
        """The boundary up to which results are due now; None: no results are due."""
        if self.next_at() > now:
            return None
        return max(
            mark.boundary
            for input_ in self._inputs.values()
            for marks, at in ((input_.stable, _due), (input_.tentative, self._due_tentative))
            for mark in marks
            if at(mark) <= now + self._ahead_s
        )

    def next_at(self) -> float:
        """When the next result is due if no event comes before; infinity: never."""
        times = [
            at(marks[0])
            for input_ in self._inputs.values()
            for marks, at in ((input_.stable, _due), (input_.tentative, self._due_tentative))
            if marks
        ]
        return min(times, default=float("inf"))

    def _due_tentative(self, mark: _Mark) -> float:
        """When tentative results are due: at once if every input has that boundary; else when the
        inputs behind it seem to be missing."""
        behind = [each for each in self._inputs.values() if each.reached < mark.boundary]
        if not behind:
            return mark.at
        return max(mark.due, *(each.advanced_at + self._live_s for each in behind))


def _due(mark: _Mark) -> float:
    return mark.due


PACES: Final = 2.5
"""How long results wait for an input after its last epoch, in epochs."""


class Fork:
    """Computes tentative results while an input is missing.

    Args:
        runner: the task itself.
        inputs: the task's inputs, by name. output: the task's output.
        bound_s: how long results may wait for a missing input, seconds.
    """

    def __init__(
        self,
        runner: TaskRunner,
        *,
        inputs: Mapping[str, StreamState],
        output: StreamState,
        bound_s: float,
        executor: Executor,
        config: EngineConfig,
        events: Events,
    ) -> None:
        self._runner = runner
        self._inputs = inputs
        self._output = output
        self._events = events
        self._editions = Editions(executor)
        self.bound_s = bound_s
        self._deadlines = Deadlines(inputs, bound_s, PACES * config.epoch_s)
        self._pacer = Pacer(QUICKER * config.epoch_s)
        self._news = Bell()
        self._random = SystemRandom()
        self._reason = ""

    @property
    def came(self) -> int:
        """The greatest boundary of an input that has not ended, microseconds."""
        stable = (state.log.boundary for state in self._inputs.values())
        return max((boundary for boundary in stable if boundary < END), default=BEGINNING)

    @property
    def given(self) -> int:
        """The boundary up to which there are results, microseconds; BEGINNING: there are none
        yet."""
        return self._output.suffix.visible

    async def run(self) -> None:
        """Compute until the output has ended; cancel to stop."""
        await self._output.log.wait_beyond(BEGINNING)  # without results yet, no results are missing
        self._deadlines.covered(self._output.log.boundary)
        watches = [partial(self._watch, name, state) for name, state in self._inputs.items()]
        await until_one_ends(self._serve, *watches)

    async def _watch(self, name: str, state: StreamState) -> None:
        """Note how far an input has come."""

        async def log_moves() -> None:
            await state.log.wait_beyond(stable)

        async def suffix_moves() -> None:
            await state.suffix.wait_beyond(tentative)

        while True:
            stable, tentative = state.log.boundary, state.suffix.visible
            now = trio.current_time()
            self._deadlines.advanced(name, stable, now, tentative=False)
            self._deadlines.advanced(name, tentative, now, tentative=True)
            self._news.ring()
            if stable == END:
                await trio.sleep_forever()
            await until_one_ends(log_moves, suffix_moves)

    async def _serve(self) -> None:
        again = retries()
        while self._output.log.boundary < END:
            self._news.clear()
            now = trio.current_time()
            self._deadlines.covered(self._output.suffix.visible)
            upto = self._deadlines.due(now)
            if upto is None or self._runner.reaches(upto):
                next_at = float("inf") if upto is not None else self._deadlines.next_at()
                await self._wait(max(0.0, next_at - now))
                continue
            # results that become due meanwhile are computed in the same job
            if delay := self._pacer.delay(now):
                await trio.sleep(delay)
                continue
            self._pacer.started(now)
            try:
                await self._compute(self._output.suffix.visible, upto)
            except MedusaError as error:
                await self._runner.suspect(error)
                self._note(error)
                await trio.sleep(again.failed(self._random))
            else:
                again.succeeded()
                self._reason = ""
                self._pacer.finished(trio.current_time())

    async def _wait(self, timeout_s: float) -> None:
        """Wait for news of the inputs, or of the task itself."""
        boundary = self._output.suffix.visible

        async def task_moves() -> None:
            await self._output.log.wait_beyond(max(boundary, self._output.log.boundary))

        with trio.move_on_after(timeout_s):
            await until_one_ends(self._news.wait, task_moves)

    async def _compute(self, after: int, upto: int) -> None:
        task = self._runner.task
        while after < upto:
            end = min(upto, task.edition_until(after))
            await self._compute_within(task, after, end)
            after = end

    async def _compute_within(self, task: Task, after: int, upto: int) -> None:
        """upto: within one edition of the task."""
        stable = {name: state.log.boundary for name, state in self._inputs.items()}
        interval = needs(task, after, upto, self._first_stime())
        table = None if interval is None else await self._job(task, after, upto, interval, stable)
        failing = min(stable.values()) <= self._output.log.boundary
        await self._output.suffix.add(after, upto, table, failing=failing)

    def _first_stime(self) -> int | None:
        firsts = [
            stime
            for state in self._inputs.values()
            for stime in (state.log.files.first_stime, state.suffix.first_stime)
            if stime is not None
        ]
        return min(firsts, default=None)

    async def _job(
        self, task: Task, after: int, upto: int, interval: Interval, stable: Mapping[str, int]
    ) -> pa.Table:
        """
        Args:
            stable: the boundary of each log; tuples after it come from the suffix.
        """
        files: dict[str, list[Path]] = {}
        async with AsyncExitStack() as pins:
            for name, state in self._inputs.items():
                low = max(read_from(task, name, after, interval), state.log.start)
                upto_log = min(interval.hi, stable[name])
                held = state.log.reader.pinned(low, upto_log) if low < upto_log else None
                files[name] = [] if held is None else pins.enter_context(held)
            for name, state in self._inputs.items():
                low = max(read_from(task, name, after, interval), stable[name])
                behind = state.suffix.files(low, interval.hi)
                files[name] += await pins.enter_async_context(behind)
            if task.recalls:
                own = self._output
                held = own.log.reader.pinned(own.log.start, own.log.boundary)
                files[task.output] = pins.enter_context(held)
                behind = own.suffix.files(own.log.boundary, after)
                files[task.output] += await pins.enter_async_context(behind)
            computation = self._editions.computation(task, after)
            result = await computation.run(files, after, upto, interval)
        self._runner.load.add(0, result.cpu_s)
        return result.table

    def _note(self, error: MedusaError) -> None:
        if self._reason != str(error):  # noted once, not at every try
            self._events.note(
                "error", f"could not compute {self._runner.task.name} tentatively: {error}"
            )
        self._reason = str(error)
