"""Functions of JSON: a text that begins with a JSON document (RFC 8259), and a path in it.

The whole document counts: the result is null if it has an object with a name twice, half a
surrogate pair, a number of more than 1,000 digits, a name of more than 50,000 characters or more
than 1,000 levels. What follows the document is not looked at.

A number without exponent and of at most 38 digits (of its fraction, too) is a text without zeros at
the end of its fraction, and -0.0 is 0; another is as it is written (if the document writes the same
double in several ways, the least of these texts), and null beyond the doubles.
"""

from __future__ import annotations

import math
import re
from typing import Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.json_documents import Number, value_at
from medusa.engine.scalars.json_paths import PathError, in_brackets, read_path
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.scalar import Family, Scalar
from medusa.engine.scalars.type_rules import Literals, Nulls, fixed

_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A pattern of numbers in JSON, for Java and for Python."""

_NEGATIVE_ZERO: Final = r"(?<![eE0-9])-0(?:\.0{1,900})?(?![.0-9eE])"
"""A pattern of negative zeros that Spark reads as exact decimals, which lose the sign."""

_DECIMAL_DIGITS: Final = 38

_STRING: Final = FieldType.STRING


def _check_path(values: Literals) -> str | None:
    if not isinstance(values[0], str):
        return "the path must be a string"
    try:
        read_path(values[0])
    except PathError as error:
        return f"the path {error}"
    return None


# -- in Spark --------------------------------------------------------------------------------------


_STRING_OR_NOT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^"]++'
"""A pattern that fits a string of JSON, or the text between two strings."""


def _variant(document: Column, path: str, kind: str) -> Column:
    return F.try_variant_get(F.try_parse_json(document), in_brackets(read_path(path)), kind)


def _signed(text: Column) -> Column:
    """A document whose negative zeros have an exponent: a variant keeps the sign of a double."""
    negative = F.lit(_NEGATIVE_ZERO)
    parts = F.regexp_extract_all(text, F.lit(_STRING_OR_NOT), F.lit(0))

    def with_exponents(part: Column) -> Column:
        return F.when(F.startswith(part, F.lit('"')), part).otherwise(
            F.regexp_replace(part, negative, F.lit("$0e0"))
        )

    made = F.array_join(F.transform(parts, with_exponents), "")
    return F.when(F.rlike(text, negative), made).otherwise(text)


def _kind(document: Column, path: str) -> Column:
    return F.schema_of_variant(_variant(document, path, "variant"))


def _spark_text(text: Column, path: str) -> Column:
    document = _signed(text)
    exact = F.rlike(_kind(document, path), F.lit(r"\A(STRING|BOOLEAN|BIGINT|DECIMAL\(.*)\z"))
    made = F.when(exact, _variant(document, path, "string"))
    return made.otherwise(_written(text, _variant(document, path, "double")))


def _written(text: Column, number: Column) -> Column:
    """A number as the document writes it; a variant keeps only its double."""

    def alike(written: Column) -> Column:
        double = written.cast("double")
        same = double.cast("string") == number.cast("string")  # -0.0 and 0.0 differ here
        return same & (F.abs(double) < F.lit(math.inf))

    return F.array_min(F.filter(F.regexp_extract_all(text, F.lit(_NUMBER), F.lit(0)), alike))


def _spark_double(text: Column, path: str) -> Column:
    number = F.rlike(_kind(text, path), F.lit(r"\A(BIGINT|DECIMAL\(.*|DOUBLE)\z"))
    made = _variant(text, path, "double") + F.lit(0.0)
    return F.when(number & (F.abs(made) < F.lit(math.inf)), made)


# -- in Python -------------------------------------------------------------------------------------


def _text(text: str, path: str) -> str | None:
    value = value_at(text, path)
    if isinstance(value, Number):
        return _plain(value.text) if _is_decimal(value.text) else _as_written(text, value.text)
    return str(value).lower() if isinstance(value, bool) else value


def _as_written(document: str, number: str) -> str | None:
    double, sign = float(number), number.startswith("-")
    written = set(re.findall(_NUMBER, document))
    alike = [each for each in written if float(each) == double and each.startswith("-") == sign]
    return min(alike) if math.isfinite(double) else None


def _double(text: str, path: str) -> float | None:
    value = value_at(text, path)
    if not isinstance(value, Number):
        return None
    number = float(value.text)
    return number + 0.0 if math.isfinite(number) else None


def _is_decimal(number: str) -> bool:
    whole, _, fraction = number.removeprefix("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    return (
        not re.fullmatch(_NEGATIVE_ZERO, number)
        and not set("eE") & set(number)
        and len(digits) <= _DECIMAL_DIGITS
        and len(fraction) <= _DECIMAL_DIGITS
    )


def _plain(number: str) -> str:
    if "." in number:
        number = number.rstrip("0").removesuffix(".")
    return number


JSON: Final = Family(
    "JSON",
    (
        Scalar(
            "json_value",
            "json_value(text, '$.a.b[0]')",
            "a string and a constant path",
            fixed((_STRING, _STRING), _STRING),
            Nulls.POSSIBLE,
            spark=_spark_text,
            value=_text,
            gives="The string, truth value or number at the path, as a text; else null.",
            examples=(
                Example(
                    "json_value('{\"a\": {\"b\": [7]}}', '$.a.b[0]')",
                    "7",
                    duckdb="json_extract_string('{\"a\": {\"b\": [7]}}', '$.a.b[0]')",
                ),
            ),
            constants=(1,),
            check=_check_path,
            repeats=(10,),
        ),
        Scalar(
            "json_double",
            "json_double(text, '$.a')",
            "a string and a constant path",
            fixed((_STRING, _STRING), FieldType.DOUBLE),
            Nulls.POSSIBLE,
            spark=_spark_double,
            value=_double,
            gives="The number at the path, as a double; else null.",
            examples=(
                Example(
                    "json_double('{\"a\": 2.5}', '$.a')",
                    2.5,
                    duckdb="json_extract('{\"a\": 2.5}', '$.a')::DOUBLE",
                ),
            ),
            constants=(1,),
            check=_check_path,
            repeats=(3,),
        ),
    ),
)
