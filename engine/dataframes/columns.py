"""Expressions to Spark columns; `medusa.engine.scalars` has the form of each function.

Spark runs with ANSI mode off, so most failures give null. Where Spark would wrap, saturate or
raise, another form of the expression is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.expressions.typed import Call, Constant, Expression, FieldRef, Operation
from medusa.engine.objects.query import OrderBy
from medusa.engine.objects.schema import BEGINNING, END, STIME, FieldType
from medusa.engine.scalars.casts import CAST, spark_cast
from medusa.engine.scalars.moments import moment
from medusa.engine.scalars.rows import SCALARS
from medusa.engine.scalars.type_rules import FLOATS, Literal, Resolution

SPARK_TYPES: Final[Mapping[FieldType, T.DataType]] = {
    FieldType.BOOL: T.BooleanType(),
    FieldType.BYTE: T.ByteType(),
    FieldType.SHORT: T.ShortType(),
    FieldType.INT: T.IntegerType(),
    FieldType.LONG: T.LongType(),
    FieldType.SINGLE: T.FloatType(),
    FieldType.DOUBLE: T.DoubleType(),
    FieldType.STRING: T.StringType(),
    FieldType.TIMESTAMP: T.TimestampType(),
}


def quoted(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")


def without_negative_zero(column: Column) -> Column:
    """The column with 0.0 for -0.0, so that equal rows have equal bytes."""
    return column + F.lit(0.0).cast(T.FloatType())


def field_column(field: FieldRef) -> Column:
    """The column of a DataFrame that a field means."""
    # the time of a side of a join
    is_time = field.name == STIME or field.name.endswith(f".{STIME}")
    return F.timestamp_micros(quoted(field.name)) if is_time else quoted(field.name)


def column(expression: Expression, read: Callable[[FieldRef], Column] = field_column) -> Column:
    """The column of an expression, over a DataFrame that has its fields and `stime`. Args: read:
    makes the column of a field, if it is not simply a column of the DataFrame.
    """
    match expression:
        case FieldRef():
            return read(expression)
        case Constant(value=value, type=type_):
            return _constant(value, type_)
        case Operation():
            return _operation(expression, read)
        case Call(function=function):
            raise AssertionError(f"{function.name} is called between Spark's jobs")


def output(name: str, expression: Expression) -> Column:
    """The expression under the name of an output field."""
    made = column(expression)
    if expression.type in FLOATS:
        made = without_negative_zero(made)
    return made.alias(name)


def _operation(operation: Operation, read: Callable[[FieldRef], Column]) -> Column:
    operands = operation.operands
    if operation.operator == CAST:
        return spark_cast(column(operands[0], read), operands[0].type, operation.type)
    row = SCALARS[operation.operator]
    types = Resolution(tuple(each.type for each in operands), operation.type)
    given = [
        each.value if place in row.constants and isinstance(each, Constant) else column(each, read)
        for place, each in enumerate(operands)
    ]
    return row.spark(types, *given) if row.by_types else row.spark(*given)


def _constant(value: Literal, type_: FieldType) -> Column:
    if type_ is FieldType.TIMESTAMP and isinstance(value, int):
        return moment(value)
    return F.lit(value).cast(SPARK_TYPES[type_])


def within(name: str, least: int, most: int, *, constant: bool) -> str:
    """The condition least <= name <= most.

    Numbers that differ from epoch to epoch would make Spark generate and compile new code every
    time: see `changing`. Spark does not push such a condition into the scan; with `constant` the
    condition is a plain one, which it pushes.
    """
    least, most = max(least, BEGINNING + 1), min(most, END)
    if constant:
        return f"{name} BETWEEN {least}L AND {most}L"
    low, high = changing(name, least, most)
    return f"{name} >= {low} AND {name} <= {high}"


def changing(name: str, *numbers: int) -> list[str]:
    """Numbers that differ from epoch to epoch, as expressions for which Spark generates the same
    code. They are in an array that the code refers to. The index into it depends (in form only) on
    the column `name`, a long; else Spark would fold it to a number.
    """
    values = ", ".join(f"{number}L" for number in numbers)
    first = f"CAST({name} & 0L AS INT)"
    return [f"get(array({values}), {first} + {n})" for n in range(len(numbers))]


def ordered(order: OrderBy) -> Column:
    """A field in an order."""
    field = quoted(order.field)
    if order.descending:
        return field.desc_nulls_first() if order.nulls_first else field.desc_nulls_last()
    return field.asc_nulls_first() if order.nulls_first else field.asc_nulls_last()


def later(time: Column, span_us: int) -> Column:
    """The time plus a span; the last of all times if the sum is beyond it."""
    if not span_us:
        return time
    last = F.lit(END - span_us).cast(T.LongType())
    return F.least(time, last) + F.lit(span_us).cast(T.LongType())
