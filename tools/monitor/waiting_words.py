"""Explains to people why a stream of a query has stopped: `query show`, `status`, `subscribe` and
the monitor say it in these words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from medusa.engine.objects.definitions import PANES, base_of, is_panes
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.tasks.status import TaskStatus
from medusa.engine.tasks.waiting import Held, Waiting, cause_of
from medusa.tools.client.times import show_duration, show_time

WAIT_S: Final = 5.0
"""Seconds that a task waits for an input before people are told: epochs are shorter."""


def why_waiting(stream: str, tasks: Iterable[TaskStatus]) -> str:
    """Why a stream that tasks make stands still; "": it does not stand still, or not for long.

    Args: tasks: all known tasks; those of other peers may be among them.
    """
    cause = cause_now(stream, tasks)
    return "" if cause is None else in_words(cause)


def held_up(tasks: Sequence[TaskStatus]) -> dict[str, str]:
    """Why queries hold back results, by stream: the streams that no other task reads."""
    read = {name for task in tasks for name in task.inputs}
    causes = {task.name: cause_now(task.name, tasks) for task in tasks if task.name not in read}
    return {
        name: in_words(cause)
        for name, cause in causes.items()
        if cause is not None and cause.held is not Held.NOTHING
    }


def cause_now(stream: str, tasks: Iterable[TaskStatus]) -> Waiting | None:
    """Why a stream stands still, if it has stood still for long."""
    waits = {each.name: each.waits for each in tasks if each.waits is not None}
    cause = cause_of(stream, waits)
    return None if cause is None or cause.seconds < WAIT_S else cause


def in_words(cause: Waiting) -> str:
    """`the window that ends ... waits for S to pass it; S stands at ..., for 12s`; S is the name
    that commands take."""
    name, long = _named(cause.stream), show_duration(cause.seconds)
    stands = f"{name} stands at {show_time(cause.at)}, for {long}"
    if cause.at == BEGINNING:
        stands = f"{name} has brought nothing, for {long}"
    match cause.held:
        case Held.WINDOW:
            return (
                f"the window that ends {show_time(cause.until + 1)} waits for {name} to pass it; "
                f"{stands}"
            )
        case Held.JOIN | Held.UNION:
            return (
                f"what the {cause.held} has up to {show_time(cause.until)} waits for {name} to get "
                f"there; {stands}"
            )
        case Held.NOTHING:
            return f"waits for {name}; {stands}"


def _named(stream: str) -> str:
    """The name by which a user knows a stream: users do not know panes."""
    if not is_panes(stream):
        return stream
    return f"the partial results of {base_of(stream).removesuffix(f'/{PANES}')}"
