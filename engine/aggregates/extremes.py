"""The least and the greatest value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from medusa.engine.aggregates.function import FOLDS, Fold, Folded, State
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.type_rules import ORDERED, SOME_BOOL
from medusa.engine.scalars.values import Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Extreme(Folded):
    """The least or greatest value; of truth values, `false` is the least."""

    fold: Fold

    def states(self, type_: FieldType) -> Sequence[State]:
        return (State("", type_, self.fold),)

    def spark_partial(self, x: Column, _type: FieldType) -> Sequence[Column]:
        return (getattr(F, self.fold)(x),)

    def partial(self, values: Sequence[Value], _type: FieldType) -> Sequence[Value]:
        return (FOLDS[self.fold](values) if values else None,)


class _Value(Extreme):
    chosen: ClassVar[bool] = True


MIN: Final = _Value(
    name="min",
    takes=ORDERED,
    argument="numbers, strings, timestamps",
    fold=Fold.MIN,
    gives="The least value.",
    example=Example("min(x)", 2, values=(7, None, 2)),
)
MAX: Final = _Value(
    name="max",
    takes=ORDERED,
    argument="numbers, strings, timestamps",
    fold=Fold.MAX,
    gives="The greatest value; NaN is greater than every number.",
    example=Example("max(x)", "b", values=("b", None, "a")),
)
BOOL_AND: Final = Extreme(
    name="bool_and",
    other_names=("every",),
    takes=SOME_BOOL,
    argument="booleans",
    fold=Fold.MIN,
    gives="Whether all values are true.",
    example=Example("bool_and(x)", False, values=(True, None, False)),
)
BOOL_OR: Final = Extreme(
    name="bool_or",
    other_names=("some",),
    takes=SOME_BOOL,
    argument="booleans",
    fold=Fold.MAX,
    gives="Whether a value is true.",
    example=Example("bool_or(x)", True, values=(True, None, False)),
)

ROWS: Final = (MIN, MAX, BOOL_AND, BOOL_OR)
