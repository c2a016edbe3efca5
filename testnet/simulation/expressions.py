"""The interpreter's expressions: their values over one row."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from engine.language.operators import INTEGER_RANGE, INTEGERS, IS_SAME
from engine.language.typed import Call, Constant, Expression, FieldRef, Operation
from engine.objects.schema import FieldType
from testnet.simulation.moments import MOMENTS
from testnet.simulation.texts import TEXTS

Value: TypeAlias = Any
"""The value of a field: a number, a text, a truth value, or None."""

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
    return _fitted(functions[call.function.name](*arguments), call.type)


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
    if name in _SHIFTS:
        value, bits = values
        return _SHIFTS[name](value, bits, 64 if expression.type is FieldType.LONG else 32)
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
    return _or([None if each is None else _equal(values[0], each) for each in values[1:]])


def _equal(left: Value, right: Value) -> bool:
    """NaN equals NaN."""
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124


def _less(left: Value, right: Value) -> bool:
    """NaN is greater than every number."""
    return bool(left < right or (right != right and left == left))  # noqa: PLR0124


def _same(values: Sequence[Any]) -> bool:
    if None in values:
        return values[0] is values[1]
    return _equal(*values)


def _substring(text: str, start: int, length: int) -> str:
    """The characters at the places from `start` on that exist."""
    first = start - 1 if start > 0 else start + len(text) if start < 0 else 0
    return text[max(first, 0) : max(first + length, 0)]


def _shift_left(value: int, bits: int, width: int) -> int | None:
    if bits not in range(width):
        return None
    moved = value << bits & (1 << width) - 1
    return moved - (1 << width) if moved >> width - 1 else moved


def _shift_right(value: int, bits: int, width: int) -> int | None:
    return value >> bits if bits in range(width) else None


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
}

_STRICT: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: None if b == 0 else a / b,
    "%": lambda a, b: None if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1),
    "neg": lambda a: -a,
    "=": _equal,
    "<>": lambda a, b: not _equal(a, b),
    "<": _less,
    "<=": lambda a, b: not _less(b, a),
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: not _less(a, b),
    "not": lambda a: not a,
    "cast": lambda a: a,
    "lower": str.lower,
    "length": len,
    "concat": lambda *parts: "".join(parts),
    "substring": _substring,
    "substring_index": _substring_index,
    "sqrt": lambda a: math.nan if a != a else math.sqrt(a) if a >= 0 else None,  # noqa: PLR0124
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    **MOMENTS,
    **TEXTS,
}

_SHIFTS: dict[str, Callable[[int, int, int], int | None]] = {
    "shiftleft": _shift_left,
    "shiftright": _shift_right,
}
