"""From which boundary on a secondary needs each stream of a query.

All are functions of boundaries alone, since a task's state is a suffix of its inputs. Boundaries
are microseconds; BEGINNING and END stand for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.plan import Task
from engine.schema import BEGINNING, END
from engine.windows import horizon_us


def needed(tasks: Sequence[Task], safe: Mapping[str, int]) -> dict[str, int]:
    """For every stream that the tasks read or make: whoever begins there, with empty windows, makes
    everything that follows `safe` (upstream backup: Hwang et al., CS-04-05, `cause()` of the oldest
    tuple that is still needed).

    Args:
        tasks: each after those whose output it reads.
        safe: by output, the boundary that all its consumers have reached.
    """
    need = {task.output: safe[task.output] for task in tasks}
    for task in reversed(tasks):
        past = _minus(need[task.output], horizon_us(task))
        for stream in task.inputs:
            need[stream] = min(need.get(stream, END), past)
    return need


def reached(tasks: Sequence[Task], inputs: Mapping[str, int]) -> dict[str, int]:
    """For every output: the boundary after which it is right when its task begins with the inputs
    after `inputs` and no window open (amnesia)."""
    at = dict(inputs)
    for task in tasks:
        begins = max(at[stream] for stream in task.inputs)
        of = task if task.of is None else task.of
        at[task.output] = _plus(begins, horizon_us(of))
    return {task.output: at[task.output] for task in tasks}


def _minus(boundary: int, span: int) -> int:
    return boundary if boundary in {BEGINNING, END} else max(BEGINNING, boundary - span)


def _plus(boundary: int, span: int) -> int:
    return boundary if boundary in {BEGINNING, END} else min(END, boundary + span)
