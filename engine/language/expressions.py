"""Typed expressions: the checked form of an expression's text.

One object may stand in several places: `x between 1 and 2` has its `x` twice. Spark, and every
function that walks the expression, visits it once in each place. So `nodes` counts it as often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from engine.objects.schema import FieldType

_REPEATED: Final = {"floor": 3, "ceil": 3}
"""How often Spark's form (`engine.spark.columns`) of an operation has its operands; others: 1."""


@dataclass(frozen=True, slots=True)
class FieldRef:
    """The value of a field of the input tuple (`stime` included, as a timestamp).

    Attributes:
        nodes: of the expression that makes the field, if an earlier step of the task does: Spark
            may put that expression in the field's place.
    """

    name: str
    type: FieldType
    nodes: int = field(default=1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; None is the null of `type`."""

    value: bool | int | float | str | None
    type: FieldType
    nodes: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator or function of the allow-list over typed operands, widened to a common type.

    Attributes:
        nodes: operations, constants and fields that a walk over it visits, itself included.
    """

    operator: str
    operands: tuple[Expression, ...]
    type: FieldType
    nodes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        below = sum(operand.nodes for operand in self.operands)
        object.__setattr__(self, "nodes", 1 + _REPEATED.get(self.operator, 1) * below)


Expression = FieldRef | Constant | Operation
