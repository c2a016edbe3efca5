"""Typed steps of a task, ready to be compiled.

A step's `nodes` count those of its expressions, as often as Spark's form repeats them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.language.expressions import Expression
from engine.objects.query import Function
from engine.objects.schema import Field, FieldType

AVERAGE_REPEATS: Final = 5
"""Most times that Spark's form of an aggregate has its argument: an average of longs has it in two
sums of halves, one of which stands in two places, and in a count."""


@dataclass(frozen=True, slots=True)
class FilterStep:
    """Keeps the tuples of one port of a filter.

    Attributes:
        predicates: all of the filter's, or as many as decide the port.
        port: a tuple is kept if predicate `port` is true and none before it is (null is not
            true); `port == len(predicates)`: if none is true.
    """

    predicates: tuple[Expression, ...]
    port: int

    @property
    def nodes(self) -> int:
        return sum(predicate.nodes for predicate in self.predicates)


@dataclass(frozen=True, slots=True)
class MapStep:
    """A projection: (output field, expression) pairs; stime is kept."""

    outputs: tuple[tuple[str, Expression], ...]

    @property
    def nodes(self) -> int:
        return sum(expression.nodes for _, expression in self.outputs)


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

    @property
    def nodes(self) -> int:
        arguments = [each.argument for each in self.functions if each.argument is not None]
        return len(self.functions) + AVERAGE_REPEATS * sum(each.nodes for each in arguments)


Step = FilterStep | MapStep | AggregateStep
