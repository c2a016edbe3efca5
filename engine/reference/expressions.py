"""The interpreter's expressions: their values over one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from medusa.engine.language.casts import CAST
from medusa.engine.language.operators import IS_SAME
from medusa.engine.language.typed import Call, Constant, Expression, FieldRef, Operation
from medusa.engine.objects.schema import FieldType
from medusa.engine.reference.casts import cast
from medusa.engine.reference.moments import MOMENTS
from medusa.engine.reference.numbers import NUMBERS, SHIFTS
from medusa.engine.reference.texts import TEXTS
from medusa.engine.reference.values import Value, fitted

Row: TypeAlias = dict[str, Any]
"""A tuple: stime (int) and the fields; of a source stream also `seq`."""

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""Functions of users, by name."""


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
    if name == "case":
        for condition, value in zip(operands[:-1:2], operands[1::2], strict=True):
            if evaluate(condition, row, functions) is True:
                return evaluate(value, row, functions)
        return evaluate(operands[-1], row, functions)
    values = [evaluate(operand, row, functions) for operand in operands]
    if name in _LENIENT:
        return _LENIENT[name](values)
    if any(value is None for value in values):
        return None
    if name == CAST:
        return cast(values[0], operands[0].type, expression.type)
    if name in SHIFTS:
        value, bits = values
        return SHIFTS[name](value, bits, 64 if expression.type is FieldType.LONG else 32)
    return fitted(_STRICT[name](*values), expression.type)


def _and(values: Sequence[Any]) -> Value:
    return False if False in values else None if None in values else True


def _or(values: Sequence[Any]) -> Value:
    return True if True in values else None if None in values else False


def _in(values: Sequence[Any]) -> Value:
    if values[0] is None:
        return None
    return _or([None if each is None else _equal(values[0], each) for each in values[1:]])


def _equal(left: Value, right: Value) -> bool:
    """NaN equals NaN."""
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124


def _less(left: Value, right: Value) -> bool:
    """NaN is greater than every number."""
    return bool(left < right or (right != right and left == left))  # noqa: PLR0124


def _first(values: Sequence[Any], before: Callable[[Value, Value], bool]) -> Value:
    """The first in an order; nulls are skipped."""
    found = None
    for each in values:
        if found is None or (each is not None and before(each, found)):
            found = each
    return found


def _same(values: Sequence[Any]) -> bool:
    if None in values:
        return values[0] is values[1]
    return _equal(*values)


def _substring(text: str, start: int, length: int) -> str:
    """The characters at the places from `start` on that exist."""
    first = start - 1 if start > 0 else start + len(text) if start < 0 else 0
    return text[max(first, 0) : max(first + length, 0)]


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


_LENIENT: dict[str, Callable[[Sequence[Any]], Any]] = {
    "and": _and,
    "or": _or,
    "in": _in,
    "is_null": lambda values: values[0] is None,
    IS_SAME: _same,
    "coalesce": lambda values: next((each for each in values if each is not None), None),
    "least": lambda values: _first(values, _less),
    "greatest": lambda values: _first(values, lambda a, b: _less(b, a)),
}

_STRICT: dict[str, Callable[..., Any]] = {
    "=": _equal,
    "<>": lambda a, b: not _equal(a, b),
    "<": _less,
    "<=": lambda a, b: not _less(b, a),
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: not _less(a, b),
    "not": lambda a: not a,
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda text: text.strip(" "),
    "length": len,
    "concat": lambda *parts: "".join(parts),
    "substring": _substring,
    "substring_index": _substring_index,
    **NUMBERS,
    **MOMENTS,
    **TEXTS,
}
