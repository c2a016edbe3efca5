"""The job of a task for one epoch: the beginning of its output, its input, and the result."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

from medusa.engine.operators.shared.step import Interval
from medusa.engine.tasks.execution import Editions, Executor, Result
from medusa.engine.tasks.inputs import TaskInputs
from medusa.engine.tasks.windows import needs, whole_after


class Jobs(Protocol):
    """Makes the epochs of one task; each is a pure function of the inputs."""

    def begins(self) -> int:
        """The boundary with which a new output begins; BEGINNING: all of it can be computed."""

    def interval(self, after: int, upto: int) -> Interval | None:
        """The part of the inputs that the output over (after, upto] needs; None: it needs no
        job."""

    async def run(self, after: int, upto: int, interval: Interval) -> Result:
        """The output over (after, upto]."""


class EpochJobs:
    """The jobs of an ordinary task, over the files of its inputs."""

    def __init__(self, inputs: TaskInputs, executor: Executor) -> None:
        self._inputs = inputs
        self._editions = Editions(executor)

    def begins(self) -> int:
        """If an input is not kept, or not read, from its beginning, the output begins with the
        first window that can be whole."""
        return whole_after(self._inputs.task, self._inputs.oldest)

    def interval(self, after: int, upto: int) -> Interval | None:
        first = self._inputs.first_stime
        return None if first is None else needs(self._inputs.task, after, upto, first)

    async def run(self, after: int, upto: int, interval: Interval) -> Result:
        with ExitStack() as pins:
            files = self._inputs.files(pins, after, interval)
            computation = self._editions.computation(self._inputs.task, after)
            return await computation.run(files, after, upto, interval)
