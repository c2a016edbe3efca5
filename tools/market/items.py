"""Tasks as the market sees them."""

from __future__ import annotations

from typing import Final

from contracts.market.messages import Item
from contracts.terms import UNITS_PER_CORE
from engine.tasks.plan import AggregateStep, FilterStep, MapStep, Task

KINDS: Final = {FilterStep: "filter", MapStep: "map", AggregateStep: "aggregate"}


def kinds_of(task: Task) -> tuple[str, ...]:
    """The box kinds that it is made of, as contracts name them."""
    kinds = {KINDS[type(step)] for step in task.steps}
    if len(task.inputs) > 1:
        kinds.add("union")
    return tuple(sorted(kinds))


def item_of(task: Task, *, owner: str, load: float, cost_ns: int) -> Item:
    """
    Args:
        owner: peer id (hex). load: cores. cost_ns: CPU nanoseconds an input tuple.
    """
    return Item(
        task=task.name,
        load=max(0.0, load) * UNITS_PER_CORE,
        owner=owner,
        cost_ns=cost_ns,
        kinds=kinds_of(task),
        inputs=task.inputs,
    )
