from __future__ import annotations

from engine.tasks.execution import Computation, Executor
from engine.tasks.plan import Task


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
        computation = self._executor.compile(edition)
        current = [task.steps, *(each.steps for each in task.editions)]
        self._compiled = [each for each in self._compiled if each[0].steps in current]
        self._compiled.append((edition, computation))
        return computation
