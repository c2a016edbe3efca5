"""How many values, or tuples, there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from medusa.engine.aggregates.function import Folded, State
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.type_rules import ANY
from medusa.engine.scalars.values import Value


class Count(Folded):
    never_null: ClassVar[bool] = True
    alone: ClassVar[bool] = True

    def states(self, _type: FieldType) -> Sequence[State]:
        return (State("", FieldType.LONG),)

    def spark_partial(self, x: Column, _type: FieldType) -> Sequence[Column]:
        return (F.count(x),)

    def partial(self, values: Sequence[Value], _type: FieldType) -> Sequence[Value]:
        return (len(values),)


COUNT: Final = Count(
    name="count",
    takes=ANY,
    argument="any",
    result=FieldType.LONG,
    gives="How many values there are; `count()` and `count(*)` count the tuples.",
    example=Example("count(x)", 2, values=(7, None, 7)),
)

ROWS: Final = (COUNT,)
