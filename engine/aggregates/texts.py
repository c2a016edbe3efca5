"""Functions that put values into a text.

    top_k(x, k)               the k most frequent values, of equally frequent ones the least:
                              [[value,number],...]
    array_agg(x)              all values in ascending order: [value,...]
    string_agg(x, 'text')     all values in ascending order, with the text between them
    histogram(x, width)       {"start":number,...}: values in [start, start + width), start a
                              multiple of width, in ascending order; of a float its floor, which
                              does not count unless it fits a long

Texts are JSON without blanks, but that of `string_agg`. In JSON, timestamps are microseconds since
the epoch. In strings, `"` and `\\` have a backslash before them, the characters below U+0020 are
\\b \\t \\n \\f \\r or \\u00XX with digits 0-9A-F, and others are themselves. Floats have no text:
engines print them differently.

A text has at most `TEXT_LIMIT` characters. Values are taken in order for as long as they fit, each
with a separator, at least one character each. If some are left, the mark follows: `null` in
`array_agg` and `top_k`, `MARK` in `string_agg`, and `"MARK":number` with the values left in
`histogram`.
"""

from __future__ import annotations

import json
import math
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

from medusa.engine.aggregates.constants import NUMBER as COUNT_CONSTANT
from medusa.engine.aggregates.constants import SEPARATOR, WIDTH
from medusa.engine.aggregates.function import EXACT, NUMBERS_OF, Bag, Constant, Entries, Kind, OfBag
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F, long_of
from medusa.engine.scalars.type_rules import INTEGER_RANGE, INTEGERS, SOME_NUMBER, SOME_STRING
from medusa.engine.scalars.values import Value

TEXT_LIMIT: Final = 16_384
"""Characters of a text: at most 64 KiB in a tuple."""

MARK: Final = "…"

_LONG_LIMIT: Final = 2.0**63


class Bins(Kind):
    """The key is the number of a histogram's bin (its start, counted in widths), the state how
    often it occurs."""

    by_constant: ClassVar[bool] = True

    def key_type(self, _argument: FieldType) -> FieldType:
        return FieldType.LONG

    def spark_key(self, x: Column, type_: FieldType, constant: Constant) -> Column:
        number = x.cast("long")
        if type_ not in INTEGERS:
            wide = x.cast("double")
            fits = (wide >= F.lit(-_LONG_LIMIT)) & (wide < F.lit(_LONG_LIMIT))
            number = F.when(fits, F.floor(wide))
        by = F.lit(constant).cast("long")
        below = (number < long_of(0)) & (number % by != long_of(0))
        return F.call_function("div", number, by) - F.when(below, long_of(1)).otherwise(long_of(0))

    def key(self, value: Value, constant: Constant) -> Value:
        if not math.isfinite(value):
            return None
        assert isinstance(constant, int)
        number = math.floor(value)
        return number // constant if number in INTEGER_RANGE[FieldType.LONG] else None


class _Text(OfBag):
    """A text that is made of the values; null if there are none."""

    def spark_of(self, bag: Bag, constant: Constant, *, descending: bool) -> Column:
        entries = F.reverse(bag.entries) if descending else bag.entries
        return F.when(bag.total > long_of(0), self.spark_text(entries, bag.type, constant))

    @abstractmethod
    def spark_text(self, entries: Column, type_: FieldType, constant: Constant) -> Column: ...

    def of(self, entries: Entries, constant: Constant, *, descending: bool) -> Value:
        return self.text(entries[::-1] if descending else entries, constant)

    @abstractmethod
    def text(self, entries: Entries, constant: Constant) -> str: ...


class _TopK(_Text):
    def spark_text(self, entries: Column, type_: FieldType, constant: Constant) -> Column:
        def turned(entry: Column) -> Column:
            number, key = entry.getField("number"), entry.getField("key")
            return F.struct((-number).alias("number"), key.alias("key"))

        def pair(entry: Column) -> Column:
            number = (-entry.getField("number")).cast("string")
            key = _spark_json(entry.getField("key"), type_)
            return _once(F.concat(F.lit("["), key, F.lit(","), number, F.lit("]")))

        assert isinstance(constant, int)
        first = F.slice(F.sort_array(F.transform(entries, turned)), 1, constant)
        return _in_brackets(F.transform(first, pair), lambda key: key)

    def text(self, entries: Entries, constant: Constant) -> str:
        assert isinstance(constant, int)
        first = sorted(entries, key=lambda entry: -entry[1])[:constant]
        pairs = [(f"[{_json(value)},{number}]", 1) for value, number in first]
        return f"[{_joined(pairs, ',', _null)}]"


class _ArrayAgg(_Text):
    ordered: ClassVar[bool] = True

    def spark_text(self, entries: Column, type_: FieldType, _constant: Constant) -> Column:
        return _in_brackets(entries, lambda key: _spark_json(key, type_))

    def text(self, entries: Entries, _constant: Constant) -> str:
        return f"[{_joined([(_json(value), number) for value, number in entries], ',', _null)}]"


class _StringAgg(_Text):
    ordered: ClassVar[bool] = True

    def spark_text(self, entries: Column, _type: FieldType, constant: Constant) -> Column:
        return _spark_joined(entries, lambda key: key, str(constant), lambda _full: F.lit(MARK))

    def text(self, entries: Entries, constant: Constant) -> str:
        return _joined(entries, str(constant), lambda _full: MARK)


class _Histogram(_Text):
    repeats: ClassVar[int] = 9

    def spark_text(self, entries: Column, _type: FieldType, constant: Constant) -> Column:
        width = F.lit(constant).cast("decimal(10,0)")

        def pair(entry: Column) -> Column:
            start = (entry.getField("key").cast("decimal(20,0)") * width).cast("string")
            number = entry.getField("number").cast("string")
            return _once(F.concat(F.lit('"'), start, F.lit('":'), number))

        def others(full: Column) -> Column:
            behind = F.slice(entries, full + F.lit(1), F.size(entries))
            number = F.aggregate(behind, long_of(0), lambda n, each: n + each.getField("number"))
            return F.concat(F.lit(f'"{MARK}":'), number.cast("string"))

        text = _spark_joined(F.transform(entries, pair), lambda key: key, ",", others)
        return F.concat(F.lit("{"), text, F.lit("}"))

    def text(self, entries: Entries, constant: Constant) -> str:
        assert isinstance(constant, int)
        pairs = [(f'"{key * constant}":{number}', 1) for key, number in entries]

        def others(full: int) -> str:
            return f'"{MARK}":{sum(number for _, number in entries[full:])}'

        return f"{{{_joined(pairs, ',', others)}}}"


# -- in Spark --------------------------------------------------------------------------------------


def _once(text: Column) -> Column:
    """One value in the text, if it occurs once."""
    return F.struct(text.alias("key"), long_of(1).alias("number"))


def _in_brackets(entries: Column, text: Callable[[Column], Column]) -> Column:
    joined = _spark_joined(entries, text, ",", lambda _full: F.lit("null"))
    return F.concat(F.lit("["), joined, F.lit("]"))


def _spark_joined(
    entries: Column,
    text: Callable[[Column], Column],
    separator: str,
    mark: Callable[[Column], Column],
) -> Column:
    """Join the texts of the keys, each as often as it occurs, as far as there is room.

    Args:
        mark: makes the end of the text if some entries do not fit, from the number of entries that
            fit as a whole.
    """

    def piece(entry: Column) -> Column:
        return text(entry.getField("key"))

    def add(found: Column, entry: Column) -> Column:
        room, number = found.getField("room"), entry.getField("number")
        weight = F.greatest(F.length(piece(entry)) + F.lit(len(separator)), F.lit(1)).cast("long")
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
        left = F.array(mark(full))
        cut = F.concat(F.array_repeat(piece(F.get(entries, full)), copies), left)
        pieces = F.flatten(before)
        return F.array_join(
            F.when(found.getField("open"), pieces).otherwise(F.concat(pieces, cut)), separator
        )

    begun = F.struct(
        F.lit(0).alias("full"),
        F.lit(0).alias("copies"),
        long_of(TEXT_LIMIT).alias("room"),
        F.lit(True).alias("open"),
    )
    return F.aggregate(entries, begun, add, put)


def _spark_json(key: Column, type_: FieldType) -> Column:
    match type_:
        case FieldType.STRING:
            array = F.to_json(F.array(key))
            return F.substr(array, F.lit(2), F.length(array) - F.lit(2))
        case FieldType.TIMESTAMP:
            return F.unix_micros(key).cast("string")
        case _:
            return key.cast("string")


# -- in Python -------------------------------------------------------------------------------------


def _null(_full: int) -> str:
    return "null"


def _json(value: Value) -> str:
    """A value as JSON; the hexadecimal digits of escapes are capitals."""
    if isinstance(value, bool | int):
        return json.dumps(value)
    parts = re.split(r"(\\\\|\\u00..)", json.dumps(value, ensure_ascii=False))
    return "".join(f"\\u{part[2:].upper()}" if part[:2] == "\\u" else part for part in parts)


def _joined(entries: Entries, separator: str, mark: Callable[[int], str]) -> str:
    pieces: list[str] = []
    room = TEXT_LIMIT
    for full, (text, number) in enumerate(entries):
        weight = max(len(text) + len(separator), 1)
        fitting = min(number, room // weight)
        pieces += [text] * fitting
        room -= fitting * weight
        if fitting < number:
            pieces.append(mark(full))
            break
    return separator.join(pieces)


TOP_K: Final = _TopK(
    name="top_k",
    takes=EXACT,
    argument="all but floats",
    result=FieldType.STRING,
    kind=NUMBERS_OF,
    constant=COUNT_CONSTANT,
    gives="JSON: the most frequent values, with how often; of equally frequent ones the least.",
    example=Example(
        "top_k(x, 2)",
        '[["a",2],["b",1]]',
        values=("a", "b", None, "a"),
        differs="DuckDB's `approx_top_k` is approximate, and gives a list",
    ),
)
STRING_AGG: Final = _StringAgg(
    name="string_agg",
    other_names=("listagg",),
    takes=SOME_STRING,
    argument="strings",
    result=FieldType.STRING,
    kind=NUMBERS_OF,
    constant=SEPARATOR,
    gives="The values in ascending order, with the text between them.",
    example=Example(
        "string_agg(x, ', ')",
        "a, a, b",
        values=("b", "a", None, "a"),
        duckdb="string_agg(x, ', ' ORDER BY x)",
    ),
)
ARRAY_AGG: Final = _ArrayAgg(
    name="array_agg",
    takes=EXACT,
    argument="all but floats",
    result=FieldType.STRING,
    kind=NUMBERS_OF,
    gives="JSON: the values in ascending order.",
    example=Example(
        "array_agg(x)",
        '["a","a","b"]',
        values=("b", "a", None, "a"),
        duckdb="to_json(list(x ORDER BY x) FILTER (x IS NOT NULL))::VARCHAR",
    ),
)
HISTOGRAM: Final = _Histogram(
    name="histogram",
    takes=SOME_NUMBER,
    argument="numbers",
    result=FieldType.STRING,
    kind=Bins(),
    constant=WIDTH,
    gives="JSON: how many values are from each multiple of the width up to the next.",
    example=Example(
        "histogram(x, 100)",
        '{"-100":2,"0":1}',
        values=(-1, 7, None, -100),
        differs="DuckDB's histogram counts each value, or takes the ends of bins",
    ),
)

ROWS: Final = (TOP_K, STRING_AGG, ARRAY_AGG, HISTOGRAM)
