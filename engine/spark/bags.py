"""Functions of bags of values, as Spark columns; `medusa.engine.language.aggregates` defines them.

Each value of a bag is one row here. So an array has as many elements as there are different values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.language.aggregates import MARK, MILLION, PERCENTILES, TEXT_LIMIT, millionths
from medusa.engine.language.operators import INTEGERS
from medusa.engine.objects.query import Function
from medusa.engine.objects.schema import FieldType
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.spark.buckets import estimate
from medusa.engine.spark.columns import SPARK_TYPES

_LONG: Final = T.LongType()
_DOUBLE: Final = T.DoubleType()
_LONG_LIMIT: Final = 2.0**63


@dataclass(frozen=True, slots=True)
class Bag:
    """Values and how often they occur.

    Attributes:
        entries: an array of structs of `key` and `number`, in ascending order of the keys.
        total: of the numbers, null if there are none.
        type: of the keys.
    """

    entries: Column
    total: Column
    type: FieldType


def bag_of(key: Column, number: Column) -> tuple[Column, Column]:
    """Aggregates: the entries of a bag, and its total. Rows without a key do not count."""
    entry = F.when(key.isNotNull(), F.struct(key.alias("key"), number.alias("number")))
    return F.sort_array(F.collect_list(entry)), F.sum(F.when(key.isNotNull(), number))


def bin_of(argument: Column, type_: FieldType, width: int) -> Column:
    """The bin of a number in a histogram, a long: its start is so many widths."""
    number = argument.cast(_LONG)
    if type_ not in INTEGERS:
        wide = argument.cast(_DOUBLE)
        fits = (wide >= F.lit(-_LONG_LIMIT)) & (wide < F.lit(_LONG_LIMIT))
        number = F.when(fits, F.floor(wide))
    by = _long(width)
    below = (number < _long(0)) & (number % by != _long(0))
    return F.call_function("div", number, by) - F.when(below, _long(1)).otherwise(_long(0))


def of_bag(each: TypedAggregate, bag: Bag) -> Column:
    """The result of one function."""
    if each.function in PERCENTILES:
        return _percentile(each, bag)
    assert each.argument is not None
    entries = F.reverse(bag.entries) if each.descending else bag.entries
    match each.function, each.parameter:
        case Function.TOP_K, int(most):
            text = _top(bag, most)
        case Function.STRING_AGG, str(separator):
            text = _joined(entries, lambda key: key, separator, F.lit(MARK))
        case Function.ARRAY_AGG, _:
            text = _in_brackets(entries, lambda key: _json(key, bag.type))
        case Function.HISTOGRAM, int(width):
            text = _histogram(bag, width)
        case _:
            raise AssertionError(each.function)
    return F.when(bag.total > _long(0), text)


def _percentile(each: TypedAggregate, bag: Bag) -> Column:
    fraction = millionths(each.function, each.parameter)
    if each.function in {Function.PERCENTILE_DISC, Function.APPROX_PERCENTILE}:
        place = _quotient(bag.total * _long(fraction) + _long(MILLION - 1)) - _long(1)
        place = F.greatest(place, _long(0))
        place = bag.total - _long(1) - place if each.descending else place
        found = _at(bag, place, place).getField("low")
        return found if each.function is Function.PERCENTILE_DISC else estimate(found)
    fraction = MILLION - fraction if each.descending else fraction
    position = (bag.total - _long(1)) * _long(fraction)
    place, rest = _quotient(position), position % _long(MILLION)
    beyond = F.when(rest > _long(0), _long(1)).otherwise(_long(0))
    share = rest.cast(_DOUBLE) / F.lit(float(MILLION))

    def between(found: Column) -> Column:
        low, high = (found.getField(name).cast(_DOUBLE) for name in ("low", "high"))
        return F.when(low == high, low).otherwise(low + (high - low) * share)

    return _named(_at(bag, place, place + beyond), between)


def _quotient(number: Column) -> Column:
    """By a million; number: not negative."""
    return F.call_function("div", number, _long(MILLION))


def _at(bag: Bag, low: Column, high: Column) -> Column:
    """The keys of the values at two places, from 0; low <= high. Null if there are no values."""
    nothing = F.lit(None).cast(SPARK_TYPES[bag.type])

    def add(found: Column, entry: Column) -> Column:
        seen, key = found.getField("seen"), entry.getField("key")
        return F.struct(
            (seen + entry.getField("number")).alias("seen"),
            F.when(seen <= low, key).otherwise(found.getField("low")).alias("low"),
            F.when(seen <= high, key).otherwise(found.getField("high")).alias("high"),
        )

    begun = F.struct(_long(0).alias("seen"), nothing.alias("low"), nothing.alias("high"))
    return F.aggregate(bag.entries, begun, add)


def _top(bag: Bag, most: int) -> Column:
    def turned(entry: Column) -> Column:
        number, key = entry.getField("number"), entry.getField("key")
        return F.struct((-number).alias("number"), key.alias("key"))

    def pair(entry: Column) -> Column:
        number = (-entry.getField("number")).cast(T.StringType())
        text = F.concat(
            F.lit("["), _json(entry.getField("key"), bag.type), F.lit(","), number, F.lit("]")
        )
        return F.struct(text.alias("key"), _long(1).alias("number"))

    first = F.slice(F.sort_array(F.transform(bag.entries, turned)), 1, most)
    return _in_brackets(F.transform(first, pair), lambda key: key)


def _histogram(bag: Bag, width: int) -> Column:
    def pair(entry: Column) -> Column:
        start = entry.getField("key").cast(T.DecimalType(20, 0)) * F.lit(width).cast(
            T.DecimalType(10, 0)
        )
        text = F.concat(
            F.lit('"'),
            start.cast(T.StringType()),
            F.lit('":'),
            entry.getField("number").cast(T.StringType()),
        )
        return F.struct(text.alias("key"), _long(1).alias("number"))

    def others(full: Column) -> Column:
        behind = F.slice(bag.entries, full + F.lit(1), F.size(bag.entries))
        number = F.aggregate(behind, _long(0), lambda sum_, each: sum_ + each.getField("number"))
        return F.concat(F.lit(f'"{MARK}":'), number.cast(T.StringType()))

    pairs = F.transform(bag.entries, pair)
    text = _joined(pairs, lambda key: key, ",", others)
    return F.concat(F.lit("{"), text, F.lit("}"))


def _in_brackets(entries: Column, text: Callable[[Column], Column]) -> Column:
    return F.concat(F.lit("["), _joined(entries, text, ",", F.lit("null")), F.lit("]"))


def _joined(
    entries: Column,
    text: Callable[[Column], Column],
    separator: str,
    mark: Column | Callable[[Column], Column],
) -> Column:
    """The texts of the keys, as often as they occur, as far as there is room.

    Args:
        mark: what follows if some are left; or a function of how many entries fit as a whole.
    """

    def piece(entry: Column) -> Column:
        return text(entry.getField("key"))

    def add(found: Column, entry: Column) -> Column:
        room, number = found.getField("room"), entry.getField("number")
        weight = F.greatest(F.length(piece(entry)) + F.lit(len(separator)), F.lit(1)).cast(_LONG)
        fitting = F.call_function("div", room, weight)
        whole = number <= fitting
        more = F.struct(
            (found.getField("full") + F.when(whole, 1).otherwise(0)).alias("full"),
            F.when(whole, F.lit(0)).otherwise(fitting.cast("int")).alias("copies"),
            F.when(whole, room - number * weight).otherwise(room).alias("room"),
            whole.alias("open"),
        )
        return F.when(found.getField("open"), more).otherwise(found)

    def put(found: Column) -> Column:
        full, copies = found.getField("full"), found.getField("copies")
        before = F.transform(
            F.slice(entries, F.lit(1), full),
            lambda entry: F.array_repeat(piece(entry), entry.getField("number").cast("int")),
        )
        left = mark(full) if callable(mark) else mark
        cut = F.concat(F.array_repeat(piece(F.get(entries, full)), copies), F.array(left))
        pieces = F.flatten(before)
        return F.array_join(
            F.when(found.getField("open"), pieces).otherwise(F.concat(pieces, cut)), separator
        )

    begun = F.struct(
        F.lit(0).alias("full"),
        F.lit(0).alias("copies"),
        _long(TEXT_LIMIT).alias("room"),
        F.lit(True).alias("open"),
    )
    return F.aggregate(entries, begun, add, put)


def _json(key: Column, type_: FieldType) -> Column:
    match type_:
        case FieldType.STRING:
            array = F.to_json(F.array(key))
            return F.substr(array, F.lit(2), F.length(array) - F.lit(2))
        case FieldType.TIMESTAMP:
            return F.unix_micros(key).cast(T.StringType())
        case _:
            return key.cast(T.StringType())


def _named(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`, with the value computed once."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def _long(number: int) -> Column:
    return F.lit(number).cast(_LONG)
