"""Guests that fill the disk: tasks of other participants whose inputs take more than they may.

Copies of a task's inputs stay here as long as the task, or its bill, needs them. A partner must not
stop our posts by that: its tasks go home once their inputs are over the bounds of `foreign`, which
count inputs of tasks apart from what subscribers keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.replication.moves.assigned_task import AssignedTask
from engine.streams.foreign import Held, to_let_go
from engine.streams.retention import Hold
from overlay.names import ObjectName


def crowding(
    tasks: Iterable[AssignedTask], participant: str, *, disk_bytes: int, short_bytes: int
) -> dict[str, str]:
    """The tasks that are to go home, each with the reason, for people.

    Args:
        participant: our own, whose tasks may take what they need.
        disk_bytes, short_bytes: see `to_let_go`.
    """
    held = [each for task in tasks for each in _held(task) if each.holder != participant]
    gone = to_let_go(held, disk_bytes=disk_bytes, short_bytes=short_bytes, hold_s=1.0, now=0.0)
    return {each.consumer.id: why for each, why in gone.items()}


def _held(assigned: AssignedTask) -> Iterator[Held]:
    task = assigned.task.name
    consumer = Hold("task", task)
    for kept in assigned.inputs:
        yield Held(
            kept.key, consumer, ObjectName.parse(task).participant, kept.log.bytes, since=0.0
        )
