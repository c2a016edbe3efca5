"""The interpreter's expressions: their values over one row."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from engine.language.operators import INTEGER_RANGE, INTEGERS
from engine.language.steps import Constant, Expression, FieldRef
from engine.objects.schema import FieldType

Value: TypeAlias = Any
"""The value of a field: a number, a text, a truth value, or None."""

Row: TypeAlias = dict[str, Any]
"""A tuple: stime (int) and the fields; of a source stream also `seq`."""


def evaluate(expression: Expression, row: Row) -> Value:
    if isinstance(expression, FieldRef):
        return row[expression.name]
    if isinstance(expression, Constant):
        return expression.value
    name, operands = expression.operator, expression.operands
    if name == "case":
        for condition, value in zip(operands[:-1:2], operands[1::2], strict=True):
            if evaluate(condition, row) is True:
                return evaluate(value, row)
        return evaluate(operands[-1], row)
    values = [evaluate(operand, row) for operand in operands]
    if name in _LENIENT:
        return _LENIENT[name](values)
    if any(value is None for value in values):
        return None
    return _fitted(_STRICT[name](*values), expression.type)


def _fitted(value: Value, type_: FieldType) -> Value:
    if value is None:
        return None
    if type_ in INTEGERS:
        return int(value) if int(value) in INTEGER_RANGE[type_] else None
    if type_ is FieldType.SINGLE:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    if type_ is FieldType.DOUBLE:
        return float(value)
    return str(value) if type_ is FieldType.STRING else value


def _and(values: Sequence[Any]) -> Value:
    return False if False in values else None if None in values else True


def _or(values: Sequence[Any]) -> Value:
    return True if True in values else None if None in values else False


def _in(values: Sequence[Any]) -> Value:
    if values[0] is None:
        return None
    return _or([None if each is None else values[0] == each for each in values[1:]])


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
    "coalesce": lambda values: next((each for each in values if each is not None), None),
}

_STRICT: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: None if b == 0 else a / b,
    "%": lambda a, b: None if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1),
    "neg": lambda a: -a,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "not": lambda a: not a,
    "cast": lambda a: a,
    "lower": str.lower,
    "length": len,
    "concat": lambda *parts: "".join(parts),
    "substring_index": _substring_index,
}
