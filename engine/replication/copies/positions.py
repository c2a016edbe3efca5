"""The boundary from which on a secondary needs each stream of a query.

All are functions of boundaries alone, since a task's state is a suffix of its inputs. Boundaries
are microseconds; BEGINNING and END stand for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medusa.engine.objects.schema import END
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import read_after, whole_after


def needed(tasks: Sequence[Task], safe: Mapping[str, int]) -> dict[str, int]:
    """The boundaries from which a peer with empty windows computes all tuples after `safe`, for
    each stream that the tasks read or make (upstream backup: Hwang et al., CS-04-05, `cause()` of
    the oldest tuple that is still needed).

    Args:
        tasks: each after those whose output it reads.
        safe: for each output, the boundary that all its consumers have reached.
    """
    need = {task.output: safe[task.output] for task in tasks}
    for task in reversed(tasks):
        for stream in task.inputs:
            past = read_after(task, stream, need[task.output])
            need[stream] = min(need.get(stream, END), past)
    return need


def reached(tasks: Sequence[Task], inputs: Mapping[str, int]) -> dict[str, int]:
    """The boundaries after which the outputs are right if the tasks begin with the inputs after
    `inputs` and without open windows (amnesia)."""
    at = dict(inputs)
    for task in tasks:
        begins = max(at[stream] for stream in task.inputs)
        of = task if task.of is None else task.of
        at[task.output] = whole_after(of, begins)
    return {task.output: at[task.output] for task in tasks}
