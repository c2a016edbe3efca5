"""Typed operations over typed operands: which operands each takes, and which are widened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from sqlglot import exp

from medusa.engine.expressions.constants import folded, widened
from medusa.engine.expressions.texts import Text
from medusa.engine.expressions.typed import Call, Constant, Expression, Operation
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.casts import CAST, can_cast
from medusa.engine.scalars.rows import SCALARS, SHORT_FORMS
from medusa.engine.scalars.type_rules import Literal, common_type, fixed

T = TypeVar("T")

Typed: TypeAlias = Expression | None
"""A typed expression; None: a bare `null`, which gets the type of its neighbours."""

Plain = bool | int | float | str
"""The types of constants that have a short form."""


class Operations:
    """Makes the operations of one text. Their refusals point at a node of its tree."""

    def __init__(self, source: Text) -> None:
        self._source = source

    def operation(
        self, name: str, operands: Sequence[Typed], node: exp.Expr, defaults: Sequence[Typed] = ()
    ) -> Operation:
        """The operation of a row of the functions and signs. defaults: the operands that the text
        leaves out, which a refusal does not count."""
        filled = self._fill([*operands, *defaults], node)
        resolution = SCALARS[name].types([operand.type for operand in filled])
        if resolution is None:
            given = ", ".join(operand.type for operand in filled[: min(len(operands), 8)])
            takes, said = SCALARS[name].takes, "||" if isinstance(node, exp.DPipe) else name
            mend = _one_type(name, {operand.type for operand in filled})
            raise self._source.refusal(f"`{said}` takes {takes}, not ({given}){mend}", node)
        self._check_constants(name, filled, node)
        wide = tuple(map(widened, filled, resolution.operands))
        return Operation(name, wide, resolution.result)

    def _check_constants(self, name: str, operands: Sequence[Expression], node: exp.Expr) -> None:
        row = SCALARS[name]
        values: list[Literal] = []
        for place in row.constants:
            if place < len(operands):
                operand = operands[place]
                if not isinstance(operand, Constant):
                    reason = f"operand {place + 1} of `{name}` must be a constant"
                    raise self._source.refusal(reason, node)
                values.append(operand.value)
        wrong = row.check(values)
        if wrong is not None:
            raise self._source.refusal(f"`{name}`: {wrong}", node)

    def _fill(self, operands: Sequence[Typed], node: exp.Expr) -> list[Expression]:
        """Give each bare null the type of its neighbours."""
        types = [operand.type for operand in operands if operand is not None]
        if len(types) == len(operands):
            return [operand for operand in operands if operand is not None]
        if not types:
            raise self._source.refusal(
                "null has no type here: write cast(null as int), or another", node
            )
        null = Constant(None, common_type(types) or types[0])
        return [null if operand is None else operand for operand in operands]

    def said(self, make: Callable[[], T], node: exp.Expr) -> T:
        """The result of `make`; its ValueError becomes the reason of a refusal."""
        try:
            return make()
        except ValueError as error:
            raise self._source.refusal(str(error), node) from None

    def choice(self, operands: Sequence[Typed], node: exp.Expr) -> Operation:
        """A `case`; a bare null among its values has their type."""
        values = self._fill([*operands[1::2], operands[-1]], node)
        conditions = [each or Constant(None, FieldType.BOOL) for each in operands[:-1:2]]
        pairs = [each for pair in zip(conditions, values, strict=False) for each in pair]
        return self.operation("case", [*pairs, values[-1]], node)

    def cast(self, target: FieldType, operand: Typed, node: exp.Expr) -> Expression:
        if operand is None:
            return Constant(None, target)
        if isinstance(operand, Constant):
            found = self.said(lambda: folded(operand, target), node)
            if found is not None:
                return found
        if not can_cast(operand.type, target):
            raise self._source.refusal(f"{operand.type} cannot be cast to {target}", node)
        return operand if operand.type is target else Operation(CAST, (operand,), target)

    def call(self, function: UserFunction, operands: Sequence[Typed], node: exp.Expr) -> Call:
        wanted = function.arguments
        pairs = zip(operands, wanted, strict=False)
        filled = [Constant(None, type_) if each is None else each for each, type_ in pairs]
        resolution = fixed(wanted, function.result)([each.type for each in filled])
        if resolution is None or len(operands) != len(wanted):
            given = ", ".join("null" if each is None else each.type for each in operands[:8])
            raise self._source.refusal(
                f"`{function.name}` is {function.signature}, not of ({given})", node
            )
        return Call(function, tuple(map(widened, filled, wanted)))

    def short(self, name: str, operands: Sequence[Typed], node: exp.Expr) -> Typed:
        form = SHORT_FORMS[name]
        if len(operands) != form.count:
            raise self._source.refusal(f"`{name}` takes {form.takes}", node)

        def make(name: str, of: Sequence[Typed | Literal]) -> Operation:
            made = [constant(each) if isinstance(each, Plain) else each for each in of]
            return self.choice(made, node) if name == "case" else self.operation(name, made, node)

        built: Typed = self.said(lambda: form.build(make, operands), node)
        return built


def constant(value: Literal) -> Constant:
    """Make a constant of a row: an int, a double or a string."""
    if isinstance(value, str):
        return Constant(value, FieldType.STRING)
    return Constant(value, FieldType.DOUBLE if isinstance(value, float) else FieldType.INT)


def _one_type(operator: str, types: set[FieldType]) -> str:
    """Say how to mend operands if some are strings, and all others are of one other type."""
    others = types - {FieldType.STRING}
    if len(others) != 1 or others == types:
        return ""
    (other,) = others
    if operator == "concat":
        return f"; cast({other} AS STRING) is one" if can_cast(other, FieldType.STRING) else ""
    if other is FieldType.TIMESTAMP:
        return "; to_timestamp(string) is a timestamp"
    kind = other.upper()
    return f"; cast(string AS {kind}) is one" if can_cast(FieldType.STRING, other) else ""
