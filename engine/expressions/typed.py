"""Typed expressions: the checked form of a text.

One object may stand in several places: `x between 1 and 2` has its `x` twice. Spark, and every
function that walks the expression, visits it once in each place. So `nodes` counts it as often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.casts import REPEATS
from medusa.engine.scalars.rows import SCALARS
from medusa.engine.scalars.type_rules import Nulls

MAX_NODES: Final = 4096
"""Nodes of a typed expression: a text that is within the limits of
`medusa.engine.expressions.parsing` and repeats nothing has no more. Measured: Spark takes
4 s to build that many, and 0.4 s of an epoch."""


@dataclass(frozen=True, slots=True)
class FieldRef:
    """The value of a field of the input tuple (`stime` included, as a timestamp).

    Attributes:
        nodes: the number of nodes of the expression that makes the field, if an earlier step of the
            task makes it and the typer counts it: see `nodes_of`.
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
    """An operator or scalar function over typed operands, widened to a common type.

    Attributes:
        nodes: the number of operations, constants and fields that a walk over it visits, itself
            included.
    """

    operator: str
    operands: tuple[Expression, ...]
    type: FieldType
    nodes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", self.nodes_over([each.nodes for each in self.operands]))

    def nodes_over(self, operands: Sequence[int]) -> int:
        """The number of nodes, if the operands have these numbers of nodes."""
        row = SCALARS.get(self.operator)
        if row is None:  # a cast
            own, times = 1, {0: REPEATS.get((self.operands[0].type, self.type), 1)}
        else:
            own, times = row.own, dict(enumerate(row.repeats))
        return own + sum(each * times.get(place, 1) for place, each in enumerate(operands))


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a user's function. Its operands are typed, and widened to the types of the
    function's arguments.

    Attributes:
        nodes: as in `Operation`.
    """

    function: UserFunction
    operands: tuple[Expression, ...]
    nodes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", self.nodes_over([each.nodes for each in self.operands]))

    def nodes_over(self, operands: Sequence[int]) -> int:
        """The number of nodes, if the operands have these numbers of nodes."""
        return 1 + sum(operands)

    @property
    def type(self) -> FieldType:
        return self.function.result


Expression = FieldRef | Constant | Operation | Call


def nodes_of(expression: Expression, before: Mapping[str, int]) -> int:
    """The number of nodes of an expression after Spark has put the expressions of earlier steps in
    the places of the fields that they make. before: the number of nodes of each such field's
    expression."""
    if not before:
        return expression.nodes
    counted: dict[int, int] = {}

    def count(part: Expression) -> int:
        match part:
            case FieldRef(name=name):
                return before.get(name, 1)
            case Constant():
                return 1
            case Operation(operands=operands) | Call(operands=operands):
                if id(part) not in counted:  # a part of several places is counted in each
                    counted[id(part)] = part.nodes_over([*map(count, operands)])
                return counted[id(part)]

    return count(expression)


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
    """The calls of an expression, each after the calls in its arguments."""
    return (each for each in parts_of(expression) if isinstance(each, Call))


def without_calls(expression: Expression, results: Mapping[Call, FieldRef]) -> Expression:
    """The expression with each call replaced by the field of its result."""
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


def nullable(expression: Expression, fields: Callable[[str], bool]) -> bool:
    """Return whether the expression may be null. `fields(name)` says whether a field may."""
    match expression:
        case FieldRef():
            return fields(expression.name)
        case Constant(value=value):
            return value is None
        case Call():
            return True
        case Operation(operator=operator, operands=operands):
            rule = SCALARS[operator].nulls if operator in SCALARS else Nulls.POSSIBLE
            if operator == "case":
                operands = (*operands[1::2], operands[-1])
            if rule is Nulls.IF_ANY:
                return any(nullable(operand, fields) for operand in operands)
            if rule is Nulls.IF_ALL:
                return all(nullable(operand, fields) for operand in operands)
            return rule is Nulls.POSSIBLE
