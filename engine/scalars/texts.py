"""Functions of texts.

Positions and lengths are in code points. What can make a long text of a short one gives null for
more than `MAX_MADE`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F, long_of
from medusa.engine.scalars.scalar import Family, Scalar, ShortForm
from medusa.engine.scalars.signs import MANY
from medusa.engine.scalars.type_rules import SOME_STRING, Literals, Nulls, fixed, uniform

MAX_MADE: Final = 65_536
"""The most code points of a text that a function makes from a shorter one."""

MAX_OTHER: Final = 256
"""Characters of a constant replacement, or delimiter."""

_STRING: Final = FieldType.STRING
_INT: Final = FieldType.INT


# -- in Spark --------------------------------------------------------------------------------------


def _length(text: Column) -> Column:
    return F.length(text).cast("long")


def _spark_replace(text: Column, part: Column, other: Column) -> Column:
    no_longer = F.length(other) <= F.length(part)
    most = F.greatest(_length(part), long_of(1)) * long_of(MAX_MADE)
    return F.when(
        no_longer | (_length(text) * _length(other) <= most), F.replace(text, part, other)
    )


def _spark_split(text: Column, delimiter: str, index: Column) -> Column:
    plain = "".join(
        each if each.isalnum() or not each.isascii() else f"\\x{{{ord(each):x}}}"
        for each in delimiter
    )
    return F.get(F.split(text, plain, -1), index)


def _spark_repeat(text: Column, times: Column) -> Column:
    fits = _length(text) * times.cast("long") <= long_of(MAX_MADE)
    return F.when(fits, F.call_function("repeat", text, times))


# -- in Python -------------------------------------------------------------------------------------


def _substring(text: str, start: int, length: int) -> str:
    """The characters at those places, from `start` on, that the text has."""
    first = start - 1 if start > 0 else start + len(text) if start < 0 else 0
    return text[max(first, 0) : max(first + length, 0)]


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _replace(text: str, part: str, other: str) -> str | None:
    if len(other) > len(part) and len(text) * len(other) > MAX_MADE * max(len(part), 1):
        return None
    return text.replace(part, other) if part else text


def _split_index(text: str, delimiter: str, index: int) -> str | None:
    pieces = text.split(delimiter)
    return pieces[index] if 0 <= index < len(pieces) else None


def _lpad(text: str, length: int, filling: str) -> str | None:
    if length > MAX_MADE:
        return None
    made = _filling(text, length, filling) + text
    return made[:length] if len(text) < length else text[: max(length, 0)]


def _rpad(text: str, length: int, filling: str) -> str | None:
    if length > MAX_MADE:
        return None
    return (text + _filling(text, length, filling))[: max(length, 0)]


def _filling(text: str, length: int, filling: str) -> str:
    missing = max(length - len(text), 0)
    return (filling * missing)[:missing]


def _repeat(text: str, times: int) -> str | None:
    return None if len(text) * times > MAX_MADE else text * times


# -- the rows --------------------------------------------------------------------------------------


def _check_delimiter(values: Literals) -> str | None:
    good = isinstance(values[0], str) and 0 < len(values[0]) <= MAX_OTHER
    return None if good else f"the delimiter must be a string of 1 to {MAX_OTHER} characters"


def _of_one(
    name: str,
    gives: str,
    example: Example,
    spark: Callable[[Column], Column],
    value: Callable[[str], str],
) -> Scalar:
    return Scalar(
        name,
        f"{name}(text)",
        "one string",
        uniform(SOME_STRING, least=1, most=1),
        Nulls.IF_ANY,
        spark=spark,
        value=value,
        gives=gives,
        examples=(example,),
    )


def _found(
    name: str,
    gives: str,
    example: Example,
    spark: Callable[[Column, Column], Column],
    value: Callable[[str, str], bool],
    *others: str,
) -> Scalar:
    return Scalar(
        name,
        f"{name}(text, part)",
        "two strings",
        uniform(SOME_STRING, FieldType.BOOL),
        Nulls.IF_ANY,
        spark=spark,
        value=value,
        gives=gives,
        examples=(example,),
        other_names=others,
    )


def _pad(name: str, value: Callable[[str, int, str], str | None], side: str, result: str) -> Scalar:
    def spark(text: Column, length: Column, filling: Column) -> Column:
        return F.when(length <= F.lit(MAX_MADE), F.call_function(name, text, length, filling))

    return Scalar(
        name,
        f"{name}(text, length, filling)",
        "a string, a length and a string",
        fixed((_STRING, _INT, _STRING), _STRING),
        Nulls.POSSIBLE,
        spark=spark,
        value=value,
        gives=f"The text, filled up at its {side}, or cut to the length; the filling may be left "
        f"out: a blank. Null if the length is above {MAX_MADE:,}.",
        examples=(Example(f"{name}('7', 3, '0')", result),),
        left_out=(2, " "),
        repeats=(1, 2),
    )


TEXTS: Final = Family(
    "Texts",
    (
        _of_one("lower", "In small letters.", Example("lower('ABC')", "abc"), F.lower, str.lower),
        _of_one("upper", "In capitals.", Example("upper('abc')", "ABC"), F.upper, str.upper),
        _of_one(
            "trim",
            "Without blanks at both ends; also `trim(both ' ' from text)`.",
            Example("trim(' a ')", "a"),
            F.trim,
            lambda text: text.strip(" "),
        ),
        _of_one(
            "ltrim",
            "Without blanks at its begin; also `trim(leading ' ' from text)`.",
            Example("ltrim(' a ')", "a "),
            F.ltrim,
            lambda text: text.lstrip(" "),
        ),
        _of_one(
            "rtrim",
            "Without blanks at its end; also `trim(trailing ' ' from text)`.",
            Example("rtrim(' a ')", " a"),
            F.rtrim,
            lambda text: text.rstrip(" "),
        ),
        Scalar(
            "length",
            "length(text)",
            "one string",
            fixed((_STRING,), _INT),
            Nulls.IF_ANY,
            spark=F.length,
            value=len,
            gives="How many characters it has.",
            examples=(Example("length('abc')", 3),),
            other_names=("char_length",),
        ),
        Scalar(
            "substring",
            "substring(text, start, length)",
            "a string, a start and a length",
            fixed((_STRING, _INT, _INT), _STRING),
            Nulls.IF_ANY,
            spark=F.substr,
            value=_substring,
            gives="The part of [start, start + length) that exists; places count from 1, 0 is "
            "taken for 1, and a negative start counts from the end. The length may be left out: "
            "all. Also `substring(text from 2 for 3)`.",
            examples=(
                Example("substring('medusa', 2, 3)", "edu"),
                Example("substring('medusa', -2)", "sa"),
                Example("substring('abc', 0, 2)", "ab", differs="DuckDB gives a"),
            ),
            other_names=("substr",),
            left_out=(2, 2**31 - 1),
        ),
        ShortForm(
            "left",
            "left(text, n)",
            "a string and a number",
            2,
            lambda make, o: make("substring", [o[0], 1, o[1]]),
            "The first n characters.",
            (Example("left('medusa', 2)", "me"),),
        ),
        Scalar(
            "right",
            "right(text, n)",
            "a string and a number",
            fixed((_STRING, _INT), _STRING),
            Nulls.IF_ANY,
            spark=F.right,
            value=lambda text, count: text[-count:] if count > 0 else "",
            gives="The last n characters; none if n is not above 0.",
            examples=(Example("right('medusa', 2)", "sa"),),
        ),
        Scalar(
            "concat",
            "concat(a, b)",
            "strings",
            uniform(SOME_STRING, least=1, most=MANY),
            Nulls.IF_ANY,
            spark=F.concat,
            value=lambda *parts: "".join(parts),
            gives="The texts one after the other, as `a || b`; null if one is null.",
            examples=(Example("concat('a', 'b')", "ab"), Example("'a' || 'b'", "ab")),
        ),
        Scalar(
            "replace",
            "replace(text, part, other)",
            "three strings",
            fixed((_STRING,) * 3, _STRING),
            Nulls.POSSIBLE,
            spark=_spark_replace,
            value=_replace,
            gives="With the other text for each such part, from the left; the part `''` is none. "
            "Null if length(text) * length(other) is above 65,536 * length(part), and the other "
            "text longer than the part.",
            examples=(Example("replace('medusa', 'us', '-')", "med-a"),),
            repeats=(2, 3, 3),
        ),
        _of_one(
            "reverse",
            "The text from its end to its beginning.",
            Example("reverse('abc')", "cba"),
            F.reverse,
            lambda text: text[::-1],
        ),
        Scalar(
            "repeat",
            "repeat(text, n)",
            "a string and a number",
            fixed((_STRING, _INT), _STRING),
            Nulls.POSSIBLE,
            spark=_spark_repeat,
            value=_repeat,
            gives=f"n times; null if that had more than {MAX_MADE:,} characters.",
            examples=(Example("repeat('ab', 2)", "abab"),),
            repeats=(2, 2),
        ),
        _pad("lpad", _lpad, "begin", "007"),
        _pad("rpad", _rpad, "end", "700"),
        _found(
            "contains",
            "Whether it has the part.",
            Example("contains('medusa', 'us')", True),
            F.contains,
            lambda text, part: part in text,
        ),
        _found(
            "startswith",
            "Whether it begins with the part.",
            Example("startswith('medusa', 'me')", True, duckdb="starts_with('medusa', 'me')"),
            F.startswith,
            str.startswith,
            "starts_with",
        ),
        _found(
            "endswith",
            "Whether it ends with the part.",
            Example("endswith('medusa', 'me')", False, duckdb="ends_with('medusa', 'me')"),
            F.endswith,
            str.endswith,
            "ends_with",
        ),
        Scalar(
            "instr",
            "instr(text, part)",
            "two strings",
            fixed((_STRING, _STRING), _INT),
            Nulls.IF_ANY,
            spark=F.instr,
            value=lambda text, part: text.find(part) + 1,
            gives="The place of the first such part, from 1; 0 if there is none.",
            examples=(Example("instr('medusa', 'us')", 4),),
        ),
        ShortForm(
            "position",
            "position(part in text)",
            "two strings",
            2,
            lambda make, o: make("instr", [o[1], o[0]]),
            "`instr(text, part)`.",
            (Example("position('us' in 'medusa')", 4),),
        ),
        Scalar(
            "substring_index",
            "substring_index(text, delimiter, n)",
            "a string, a delimiter and a number",
            fixed((_STRING, _STRING, _INT), _STRING),
            Nulls.IF_ANY,
            spark=lambda *o: F.call_function("substring_index", *o),
            value=_substring_index,
            gives="The part before the nth delimiter from the left, or behind the nth from the "
            "right if n is below 0; all if there are fewer.",
            examples=(
                Example(
                    "substring_index('a.b.c', '.', 2)",
                    "a.b",
                    duckdb="array_to_string(string_split('a.b.c', '.')[:2], '.')",
                ),
            ),
        ),
        Scalar(
            "split_index",
            "split_index(text, '/', n)",
            "a string, a constant delimiter and a number",
            fixed((_STRING, _STRING, _INT), _STRING),
            Nulls.POSSIBLE,
            spark=_spark_split,
            value=_split_index,
            gives="The nth piece, from 0; null if there are fewer pieces.",
            examples=(
                Example("split_index('a/b/c', '/', 1)", "b", duckdb="split_part('a/b/c', '/', 2)"),
            ),
            constants=(1,),
            check=_check_delimiter,
        ),
    ),
)
