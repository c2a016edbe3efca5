"""Typed expressions: the checked form of a text.

One object may stand in several places: `x between 1 and 2` has its `x` twice. Spark, and every
function that walks the expression, visits it once in each place. So `nodes` counts it as often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from medusa.engine.language.casts import CAST
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.type_rules import INTEGERS

_REPEATED: Final = {
    "floor": (3,),
    "ceil": (3,),
    "sqrt": (2,),
    "shiftleft": (1, 2),
    "shiftright": (1, 2),
    "date_trunc": (1, 2),
    "date_format": (3,),
    "to_timestamp": (2,),
    "replace": (2, 3, 3),
    "lpad": (1, 2),
    "rpad": (1, 2),
    "repeat": (2, 2),
    "regexp_like": (2,),
    "regexp_extract": (3,),
    "regexp_replace": (2,),
    "json_value": (10,),
    "json_double": (3,),
    "hash64": (2,),
}
"""How often Spark's form (`medusa.engine.spark.columns`) of an operation has each operand; others:
1."""

_REPEATED_CASTS: Final = {
    **{(FieldType.STRING, integer): 2 for integer in INTEGERS},
    (FieldType.STRING, FieldType.SINGLE): 15,
    (FieldType.STRING, FieldType.DOUBLE): 5,
    (FieldType.SINGLE, FieldType.LONG): 2,
    (FieldType.DOUBLE, FieldType.LONG): 2,
    (FieldType.DOUBLE, FieldType.SINGLE): 3,
}
"""The same of casts, by the types of the operand and of the result."""

_OWN: Final = {"ip_in_cidr": 50, "ip_prefix": 128}
"""How many Spark's form of an operation is, without its operands; others: 1. Measured: Spark takes
as long to plan as for so many."""


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
        repeated: tuple[int, ...] = _REPEATED.get(self.operator, ())
        if self.operator == CAST:
            repeated = (_REPEATED_CASTS.get((self.operands[0].type, self.type), 1),)
        times = dict(enumerate(repeated))
        below = sum(each.nodes * times.get(place, 1) for place, each in enumerate(self.operands))
        object.__setattr__(self, "nodes", _OWN.get(self.operator, 1) + below)


@dataclass(frozen=True, slots=True)
class Call:
    """The result of a user's function over typed operands, widened to its arguments' types.

    Attributes:
        nodes: as of an `Operation`.
    """

    function: UserFunction
    operands: tuple[Expression, ...]
    nodes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", 1 + sum(each.nodes for each in self.operands))

    @property
    def type(self) -> FieldType:
        return self.function.result


Expression = FieldRef | Constant | Operation | Call


def parts_of(expression: Expression) -> Iterator[Expression]:
    """All parts of an expression, each behind its operands; the last is the expression itself."""
    match expression:
        case FieldRef() | Constant():
            pass
        case Operation(operands=operands) | Call(operands=operands):
            for each in operands:
                yield from parts_of(each)
    yield expression


def fields_in(expression: Expression) -> Iterator[str]:
    """The names of the fields that an expression has."""
    return (each.name for each in parts_of(expression) if isinstance(each, FieldRef))


def calls_in(expression: Expression) -> Iterator[Call]:
    """The calls of an expression, each behind those that are its arguments."""
    return (each for each in parts_of(expression) if isinstance(each, Call))


def without_calls(expression: Expression, results: Mapping[Call, FieldRef]) -> Expression:
    """The expression with the fields of their results in the place of calls."""
    match expression:
        case FieldRef(name=name, type=type_):
            return FieldRef(name, type_)
        case Constant():
            return expression
        case Call():
            return results[expression]
        case Operation(operator=operator, operands=operands, type=type_):
            inner = tuple(without_calls(each, results) for each in operands)
            return Operation(operator, inner, type_)
