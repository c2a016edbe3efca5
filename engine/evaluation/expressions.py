"""The interpreter's expressions: their values over one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from medusa.engine.expressions.typed import Call, Constant, Expression, FieldRef, Operation
from medusa.engine.scalars.casts import CAST, cast
from medusa.engine.scalars.rows import SCALARS
from medusa.engine.scalars.type_rules import Resolution
from medusa.engine.scalars.values import Value, fitted

Row: TypeAlias = dict[str, Any]
"""A tuple: stime (int) and the fields; of a source stream also `seq`."""

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""The Python functions of users, by name."""


def evaluate(expression: Expression, row: Row, functions: Functions | None = None) -> Value:
    match expression:
        case FieldRef(name=name):
            return row[name]
        case Constant(value=value):
            return value
        case Call():
            return _called(expression, row, functions or {})
        case Operation():
            return _operated(expression, row, functions)


def _called(call: Call, row: Row, functions: Functions) -> Value:
    arguments = [evaluate(operand, row, functions) for operand in call.operands]
    return fitted(functions[call.function.name](*arguments), call.type)


def _operated(expression: Operation, row: Row, functions: Functions | None) -> Value:
    name, operands = expression.operator, expression.operands
    values = [evaluate(operand, row, functions) for operand in operands]
    if name == CAST:
        return None if values[0] is None else cast(values[0], operands[0].type, expression.type)
    found = SCALARS[name]
    if not found.of_nulls and any(value is None for value in values):
        return None
    if found.by_types:
        types = Resolution(tuple(each.type for each in operands), expression.type)
        return fitted(found.value(types, *values), expression.type)
    return fitted(found.value(*values), expression.type)
