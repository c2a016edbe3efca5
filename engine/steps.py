"""Typed steps: what a task does to its tuples, ready to be compiled."""

from __future__ import annotations

from dataclasses import dataclass

from engine.expressions import Expression
from engine.query import Function
from engine.schema import Field, FieldType


@dataclass(frozen=True, slots=True)
class FilterStep:
    """Keeps the tuples that leave a filter by one port.

    Attributes:
        predicates: all of the filter's, or as many as decide the port.
        port: a tuple is kept if predicate `port` is true and none before it is (null is not
            true); `port == len(predicates)`: if none is true.
    """

    predicates: tuple[Expression, ...]
    port: int


@dataclass(frozen=True, slots=True)
class MapStep:
    """A projection: (output field, expression) pairs; stime is kept."""

    outputs: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class TypedAggregate:
    """`function(argument) AS output`, of type `type`; no argument: count of tuples."""

    function: Function
    argument: Expression | None
    output: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class AggregateStep:
    """Windows [k * advance, k * advance + size) of stime, microseconds, by group.

    The output tuple: stime = window end - 1; `window_start`, the group-by fields, the functions'
    outputs.
    """

    size_us: int
    advance_us: int
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]


Step = FilterStep | MapStep | AggregateStep
