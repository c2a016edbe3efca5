from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from medusa.engine.tasks.waiting import Waiting
from medusa.overlay.troubles import Reason, Trouble


class TaskStatus(Struct, frozen=True):
    """The status of a task: a partition of a query's work, with one output stream.

    Attributes:
        epoch_ms: the last epoch job's duration. load: CPU seconds per second, smoothed.
        rate: output rows per second, smoothed.
        state: running, waiting, starting (its executor), stopped, failing (see reason) or away.
        input_rate: rows per second that it reads, smoothed.
        cost_ns: CPU nanoseconds per input row at that rate; 0: not known yet.
        worker: id (hex) of the peer that runs it for this one. owner: id of the peer for which this
            one runs it. waits: the input for which it waits, and the results that it holds back;
            None: it does not wait.
    """

    name: str
    query: str
    inputs: tuple[str, ...]
    boundary: int
    epochs: int
    epoch_ms: float
    load: float
    rate: float
    state: str
    reason: str = ""
    input_rate: float = 0.0
    cost_ns: int = 0
    worker: str = ""
    owner: str = ""
    waits: Waiting | None = None


def troubles_of(tasks: Iterable[TaskStatus], executor: str) -> Iterator[Trouble]:
    """The troubles of a peer's tasks. executor: why no task can be computed; "": tasks can."""
    failing = [task for task in tasks if task.reason]
    if executor and failing:
        yield Trouble(Reason.CANNOT_COMPUTE, "the engine of tasks", f"cannot compute: {executor}")
    for task in failing:
        if task.reason != executor:
            yield Trouble(Reason.TASK_FAILS, task.name, f"fails: {task.reason}")
