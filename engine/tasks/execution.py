"""What runs tasks, as the engine sees it: Spark in production, anything else in its place.

Whoever computes is given files and an interval, and gives the tuples of an epoch; that the result
depends on nothing else is what the engine stands on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa

from engine.tasks.plan import Task
from engine.tasks.windows import Interval
from overlay.events import Events


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave.

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
                once; others they may hold are left out.
            interval: what `engine.tasks.windows.needs` says for (after, upto].

        Raises:
            MedusaError: it failed; the same epoch may be tried again.
        """


class Executor(Protocol):
    """What computes the tasks of one peer."""

    @property
    def state(self) -> str:
        """off, starting, running, lost or failed: what the monitor shows."""

    @property
    def trouble(self) -> str:
        """Why it could not be started, and the mend; empty where it could, or was not yet."""

    async def prepare(self, tasks: Sequence[Task] = ()) -> None:
        """Get ready for the first job of these. A failure is noted: that job meets it again."""

    def compile(self, task: Task) -> Computation:
        """A task, to be run epoch by epoch."""


OpenExecutor: TypeAlias = Callable[[Path, Events], AbstractAsyncContextManager[Executor]]
"""Opens one for a peer, given the folder of its logs."""
