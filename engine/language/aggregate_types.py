"""The types of the aggregate functions."""

from __future__ import annotations

from typing import Final

from medusa.engine.language.operators import FLOATS, INTEGERS, NUMBERS, ORDERED
from medusa.engine.objects.query import Function
from medusa.engine.objects.schema import FieldType

_ANY: Final = frozenset(FieldType)
_NUMBER: Final = frozenset(NUMBERS)
_EXACT: Final = _ANY - {*FLOATS}
_BOOL: Final = frozenset({FieldType.BOOL})
_STRING: Final = frozenset({FieldType.STRING})

_TYPES: Final[dict[Function, tuple[frozenset[FieldType], FieldType | None]]] = {
    Function.COUNT: (_ANY, FieldType.LONG),
    Function.COUNT_DISTINCT: (_ANY, FieldType.LONG),
    Function.APPROX_COUNT_DISTINCT: (_ANY, FieldType.LONG),
    Function.SUM: (_NUMBER, FieldType.DOUBLE),
    Function.AVG: (_NUMBER, FieldType.DOUBLE),
    Function.MIN: (ORDERED, None),
    Function.MAX: (ORDERED, None),
    Function.FIRSTVAL: (_ANY, None),
    Function.LASTVAL: (_ANY, None),
    Function.VAR_POP: (_NUMBER, FieldType.DOUBLE),
    Function.VAR_SAMP: (_NUMBER, FieldType.DOUBLE),
    Function.STDDEV_POP: (_NUMBER, FieldType.DOUBLE),
    Function.STDDEV_SAMP: (_NUMBER, FieldType.DOUBLE),
    Function.MEDIAN: (_NUMBER, FieldType.DOUBLE),
    Function.PERCENTILE: (_NUMBER, FieldType.DOUBLE),
    Function.PERCENTILE_DISC: (ORDERED, None),
    Function.APPROX_PERCENTILE: (_NUMBER, FieldType.DOUBLE),
    Function.TOP_K: (_EXACT, FieldType.STRING),
    Function.STRING_AGG: (_STRING, FieldType.STRING),
    Function.ARRAY_AGG: (_EXACT, FieldType.STRING),
    Function.HISTOGRAM: (_NUMBER, FieldType.STRING),
    Function.BOOL_AND: (_BOOL, None),
    Function.BOOL_OR: (_BOOL, None),
}
"""The types that the argument of a function may have, and that of its result; None: the same."""


def aggregate_type(function: Function, argument: FieldType | None) -> FieldType | None:
    """The type of an aggregate's result; None if it does not take such an argument.

    Sums of integers are long, of floats double; an average is double; null arguments are skipped,
    except by firstval and lastval, which take the window's first and last tuple as it is. Over no
    values, the counts give 0 and the others null; a sum that does not fit is null. The variance of
    a sample of one value is null. `medusa.engine.language.aggregates` defines the rest.
    """
    if argument is None:
        return FieldType.LONG if function is Function.COUNT else None
    takes, result = _TYPES[function]
    if argument not in takes:
        return None
    if function is Function.SUM and argument in INTEGERS:
        return FieldType.LONG
    return result or argument
