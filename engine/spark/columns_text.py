"""Operations on texts as Spark columns; `medusa.engine.language.operators_text` defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.language.json_paths import in_brackets, read_path
from medusa.engine.language.operators_text import (
    JSON_NUMBER,
    MAX_MADE,
    NEGATIVE_ZERO,
    longest_replaced,
)
from medusa.engine.language.pattern_work import longest_text
from medusa.engine.language.patterns import read_pattern
from medusa.engine.scalars.type_rules import Literals
from medusa.engine.spark.columns_address import ADDRESS_COLUMNS

Columns = Sequence[Column]

_STRING_OR_NOT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^"]++'
"""A string of JSON, or what is between two."""


def _long(number: int) -> Column:
    return F.lit(number).cast(T.LongType())


def _length(text: Column) -> Column:
    return F.length(text).cast(T.LongType())


def _replace(operands: Columns, _: Literals) -> Column:
    text, part, other = operands
    no_longer = F.length(other) <= F.length(part)
    most = F.greatest(_length(part), _long(1)) * _long(MAX_MADE)
    return F.when(
        no_longer | (_length(text) * _length(other) <= most), F.replace(text, part, other)
    )


def _split(operands: Columns, constants: Literals) -> Column:
    plain = "".join(
        each if each.isalnum() or not each.isascii() else f"\\x{{{ord(each):x}}}"
        for each in str(constants[1])
    )
    return F.get(F.split(operands[0], plain, -1), operands[2])


def _pad(function: str) -> Callable[[Columns, Literals], Column]:
    def build(operands: Columns, _: Literals) -> Column:
        padded = F.call_function(function, *operands)
        return F.when(operands[1] <= F.lit(MAX_MADE), padded)

    return build


def _repeat(operands: Columns, _: Literals) -> Column:
    text, times = operands
    fits = _length(text) * times.cast(T.LongType()) <= _long(MAX_MADE)
    return F.when(fits, F.call_function("repeat", text, times))


def _within(text: Column, pattern: str, made: Column) -> Column:
    return F.when(F.length(text) <= F.lit(longest_text(pattern)), made)


def _like(operands: Columns, constants: Literals) -> Column:
    pattern = str(constants[1])
    java = F.lit(read_pattern(pattern).java)
    return _within(operands[0], pattern, F.rlike(operands[0], java))


def _extract(operands: Columns, constants: Literals) -> Column:
    text, pattern, group = operands[0], str(constants[1]), constants[2]
    java = read_pattern(pattern).java
    assert isinstance(group, int)
    found = F.regexp_extract(text, java, group)
    return _within(text, pattern, F.when(F.rlike(text, F.lit(java)), found))


def _regexp_replace(operands: Columns, constants: Literals) -> Column:
    text, pattern, other = operands[0], str(constants[1]), str(constants[2])
    read = read_pattern(pattern)
    longest = min(longest_text(pattern), longest_replaced(read.least, other))
    made = F.regexp_replace(text, read.java, other)
    return F.when(F.length(text) <= F.lit(longest), made)


def _variant(document: Column, constants: Literals, kind: str) -> Column:
    path = in_brackets(read_path(str(constants[1])))
    return F.try_variant_get(F.try_parse_json(document), path, kind)


def _signed(text: Column) -> Column:
    """A document whose negative zeros have an exponent: a variant keeps the sign of a double."""
    negative = F.lit(NEGATIVE_ZERO)
    parts = F.regexp_extract_all(text, F.lit(_STRING_OR_NOT), F.lit(0))

    def with_exponents(part: Column) -> Column:
        return F.when(F.startswith(part, F.lit('"')), part).otherwise(
            F.regexp_replace(part, negative, F.lit("$0e0"))
        )

    made = F.array_join(F.transform(parts, with_exponents), "")
    return F.when(F.rlike(text, negative), made).otherwise(text)


def _json_kind(document: Column, constants: Literals) -> Column:
    return F.schema_of_variant(_variant(document, constants, "variant"))


def _json_value(operands: Columns, constants: Literals) -> Column:
    document = _signed(operands[0])
    kind = _json_kind(document, constants)
    exact = F.rlike(kind, F.lit(r"\A(STRING|BOOLEAN|BIGINT|DECIMAL\(.*)\z"))
    made = F.when(exact, _variant(document, constants, "string"))
    return made.otherwise(_written(operands[0], _variant(document, constants, "double")))


def _written(text: Column, number: Column) -> Column:
    """How a document writes a number, of which a variant keeps the double alone."""

    def alike(written: Column) -> Column:
        double = written.cast(T.DoubleType())
        same = double.cast(T.StringType()) == number.cast(T.StringType())  # -0.0 is not 0.0
        return same & (F.abs(double) < F.lit(math.inf))

    return F.array_min(F.filter(F.regexp_extract_all(text, F.lit(JSON_NUMBER), F.lit(0)), alike))


def _json_double(operands: Columns, constants: Literals) -> Column:
    kind = _json_kind(operands[0], constants)
    number = F.rlike(kind, F.lit(r"\A(BIGINT|DECIMAL\(.*|DOUBLE)\z"))
    made = _variant(operands[0], constants, "double") + F.lit(0.0)
    return F.when(number & (F.abs(made) < F.lit(math.inf)), made)


def _hash64(operands: Columns, _: Literals) -> Column:
    """Spark hashes null, too."""
    return F.when(operands[0].isNotNull(), F.xxhash64(operands[0]))


def _sha2(operands: Columns, constants: Literals) -> Column:
    assert isinstance(constants[1], int)
    return F.sha2(operands[0], constants[1])


def _plain(function: Callable[..., Column]) -> Callable[[Columns, Literals], Column]:
    return lambda operands, _: function(*operands)


TEXT_COLUMNS: Final[Mapping[str, Callable[[Columns, Literals], Column]]] = {
    "contains": _plain(F.contains),
    "startswith": _plain(F.startswith),
    "endswith": _plain(F.endswith),
    "instr": _plain(F.instr),
    "replace": _replace,
    "split_index": _split,
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "repeat": _repeat,
    "reverse": _plain(F.reverse),
    "ltrim": _plain(F.ltrim),
    "rtrim": _plain(F.rtrim),
    "right": _plain(F.right),
    "regexp_like": _like,
    "regexp_extract": _extract,
    "regexp_replace": _regexp_replace,
    "json_value": _json_value,
    "json_double": _json_double,
    "hash64": _hash64,
    "md5": _plain(F.md5),
    "sha2": _sha2,
    "crc32": _plain(F.crc32),
    **ADDRESS_COLUMNS,
}
"""By operator; each takes the operands, and the values of those that are constants."""
