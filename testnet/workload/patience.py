"""Bounds a workload's waiting: names queries that have stopped, with the input for which each of
their tasks waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.query import Query
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.errors import UnavailableError
from medusa.testnet.kit.patience import Patience
from medusa.tools.client.async_client import AsyncMedusaClient

PATIENCE_S: Final = 300.0
"""Seconds in which some task must make progress, in addition to the time for the rows of an
epoch."""

SLOWEST_ROWS_PER_S: Final = 1_000.0
"""The assumed rows per second of an epoch, which may have all rows of a workload: the slowest query
of Nexmark takes 8,000 a second."""

LOOK_S: Final = 1.0
"""Seconds between two looks."""


class StandstillError(UnavailableError, code=None):
    """The queries stand still; later queries would stand still, too."""


def patience_with(tables: Mapping[str, pa.Table], patience_s: float = PATIENCE_S) -> float:
    """The seconds for which tasks may stand still over these rows."""
    return patience_s + sum(map(len, tables.values())) / SLOWEST_ROWS_PER_S


async def lose_patience(
    client: AsyncMedusaClient, queries: Sequence[Query], patience_s: float
) -> None:
    """Watch the tasks of the queries for ever. Args: patience_s: seconds that all tasks of the
    queries may stand still. Raises: StandstillError: all tasks stood still for longer; names the
    tasks and what each waits for.
    """
    patience, latest = Patience(patience_s), trio.current_time()
    while True:
        tasks = [
            task
            for query in queries
            for task in (await client.lookup_object(query.name, "query")).tasks
        ]
        now = trio.current_time()
        if not patience.look({task.name: task.boundary for task in tasks}, now - latest):
            held_up = "; ".join(map(_standing, tasks)) or "no task is placed"
            raise StandstillError(f"nothing got on for {patience_s:.0f} s: {held_up}")
        latest = now
        await trio.sleep(LOOK_S)


def _standing(task: TaskStatus) -> str:
    waits = f" for {task.waits.stream}" if task.waits else ""
    return f"{task.name} is {task.state}{waits}, {task.epochs} epochs done"
