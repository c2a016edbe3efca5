"""Operations on moments as Spark columns; `medusa.engine.language.operators_time` defines them.

Spark's own functions are total over all timestamps, except `date_trunc`, which fails if the result
does not fit. The session's time zone is UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.language.operators_time import PLUS_INTERVAL
from medusa.engine.language.time_units import (
    UNITS_US,
    YEARS_FROM,
    YEARS_UNTIL,
    MomentFormat,
    first_whole,
    read_format,
    read_parsed_format,
    shape_of,
    unit_of,
)
from medusa.engine.scalars.type_rules import Literals

Columns = Sequence[Column]

_ISO: Final = (
    r"\A(?!0000)\d{4}-\d{2}-\d{2}"
    r"([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-7]):[0-5]\d)?)?)?\z"
)
"""The texts of which Spark's cast takes the date and the time as they stand."""

_FINER: Final = r"(\.\d{6})\d+"
"""Digits behind those of the microsecond, of which Spark reads some and overflows at others."""


def moment(micros: int) -> Column:
    """A constant timestamp, microseconds since 1970."""
    return F.timestamp_micros(F.lit(micros).cast(T.LongType()))


def _plus(operands: Columns, _: Literals) -> Column:
    return F.timestamp_micros(F.try_add(F.unix_micros(operands[0]), operands[1]))


def _trunc(operands: Columns, constants: Literals) -> Column:
    unit = unit_of(str(constants[0]))
    cut = F.date_trunc(unit, operands[1])
    return F.when(operands[1] >= moment(first_whole(unit)), cut)


def _between(operands: Columns, constants: Literals) -> Column:
    unit = F.lit(UNITS_US[unit_of(str(constants[0]))]).cast(T.LongType())
    apart = F.try_subtract(F.unix_micros(operands[2]), F.unix_micros(operands[1]))
    return F.call_function("div", apart, unit)


def _format(operands: Columns, constants: Literals) -> Column:
    made = read_format(str(constants[1]))
    in_range = (operands[0] >= moment(YEARS_FROM)) & (operands[0] < moment(YEARS_UNTIL))
    return F.when(in_range, F.date_format(operands[0], _java(made)))


def _read(operands: Columns, constants: Literals) -> Column:
    text = operands[0]
    if len(operands) == 1:
        cut = F.regexp_replace(text, _FINER, "$1")
        return F.when(F.rlike(cut, F.lit(_ISO)), cut.try_cast(T.TimestampType()))
    made = read_parsed_format(str(constants[1]))
    parsed = F.try_to_timestamp(text, F.lit(_java(made)))
    fits = F.rlike(text, F.lit(rf"\A{shape_of(made)}\z"))
    return F.when(fits, parsed)


def _java(made: MomentFormat) -> str:
    """The pattern for Java's DateTimeFormatter."""
    return "".join(text if lettered else f"'{text}'" for text, lettered in made.parts)


def _part(function: Callable[[Column], Column]) -> Callable[[Columns, Literals], Column]:
    return lambda operands, _: function(operands[0])


TIME_COLUMNS: Final[Mapping[str, Callable[[Columns, Literals], Column]]] = {
    PLUS_INTERVAL: _plus,
    "year": _part(F.year),
    "quarter": _part(F.quarter),
    "month": _part(F.month),
    "day": _part(F.dayofmonth),
    "hour": _part(F.hour),
    "minute": _part(F.minute),
    "second": _part(F.second),
    "dayofweek": _part(F.dayofweek),
    "dayofyear": _part(F.dayofyear),
    "unix_micros": _part(F.unix_micros),
    "unix_seconds": _part(F.unix_seconds),
    "date_trunc": _trunc,
    "timestampdiff": _between,
    "date_format": _format,
    "to_timestamp": _read,
}
"""By operator; each takes the operands, and the values of those that are constants."""
