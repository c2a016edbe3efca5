"""Explains why a task emits nothing: the input for which it waits, and the results that wait.

A task's output has the boundary that all its inputs have. So the input that is furthest behind
decides; the tuples of other inputs, or the open window, wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.tasks.plan import Task


class Held(StrEnum):
    """The kinds of results that a task holds back."""

    NOTHING = "nothing"
    WINDOW = "window"
    JOIN = "join"
    UNION = "union"


class Waiting(Struct, frozen=True):
    """The wait of a task for an input.

    Attributes:
        stream: the input that is furthest behind. at: its boundary, microseconds.
        seconds: the length of the wait so far. held: the kind of results that the task holds back.
        until: the boundary that the input must reach, microseconds: the last microsecond of the
            window, or the boundary of the input that is furthest ahead.
    """

    stream: str
    at: int
    seconds: float
    held: Held = Held.NOTHING
    until: int = BEGINNING


def waiting(task: Task, output: int, inputs: Mapping[str, int], seconds: float) -> Waiting | None:
    """The wait of a task; None: its next epoch can be computed.

    Args: output: its boundary. inputs: their boundaries, by stream. seconds: how long ago its last
    epoch was emitted.
    """
    behind = min(inputs, key=inputs.__getitem__)
    at, ahead = inputs[behind], max(inputs.values())
    if at > min(output, task.until - 1):
        return None
    found = Waiting(behind, at, seconds)
    if ahead > at:
        held = Held.JOIN if task.sided else Held.UNION
        return replace(found, held=held, until=ahead)
    window = task.at(output).windows
    if window is None or output in {BEGINNING, END}:
        return found
    closed = (output + 1 - window.size_us) // window.advance_us
    end = (closed + 1) * window.advance_us + window.size_us - 1
    return replace(found, held=Held.WINDOW, until=end)


def cause_of(stream: str, tasks: Mapping[str, Waiting]) -> Waiting | None:
    """Why a stream of a query stands still: the results that its own task, or the first waiting one
    before it, holds back, and the stream at the end of the chain, which no task of the query makes.
    Args: tasks: the waiting tasks, by their output.
    """
    found = last = tasks.get(stream)
    seen = {stream}
    while last is not None and last.stream in tasks and last.stream not in seen:
        seen.add(last.stream)
        last = tasks[last.stream]
        if found is not None and found.held is Held.NOTHING:
            found = last
    if found is None or last is None:
        return None
    return replace(found, stream=last.stream, at=last.at, seconds=last.seconds)
